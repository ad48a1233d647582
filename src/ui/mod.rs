//! Everything a person or a script reads. stdout is the answer, stderr is talk; nothing below this floor
//! prints.

pub mod cage;
pub mod doctor;
pub mod gate;
pub mod html;
pub mod json;
pub mod landing;
mod out;
pub mod pager;
pub mod policy;
pub mod prompt;
pub mod report;
pub mod review;
pub mod sync;
pub mod time;
pub mod trust;

pub use out::Out;
