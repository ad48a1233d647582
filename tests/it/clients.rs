//! Agent clients as engines: their logins with scripts in their place, and the real ones against a model endpoint
//! that follows a script.

mod login;
mod real;
