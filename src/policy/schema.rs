//! The file as written: every key there is, no other, no default guessed. [`super::compile`] gives it meaning.

use super::units::Scalar;
use super::{Isolation, LandingMode, Network, Protection, RoleKind, SignerRole, TaskText, Tier};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_saphyr::Spanned;
use std::{fmt, marker::PhantomData};

/// A mapping with the places of its keys, in the order of the file. The parser refuses a second equal key.
pub(super) struct Entries<T>(pub Vec<(Spanned<String>, T)>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Entries<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Each<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Each<T> {
            type Value = Entries<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a mapping")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries<T>, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }
        d.deserialize_map(Each(PhantomData))
    }
}

/// A key that is present has a value: `strip:` with nothing after it is an error, not an absent key.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(d: D) -> Result<Option<T>, D::Error> {
    T::deserialize(d).map(Some)
}

pub(super) type Words = Spanned<Vec<Spanned<String>>>;
pub(super) type List = Spanned<Vec<Spanned<String>>>;

macro_rules! keys {
    ($name:ident { $($(#[$m:meta])* $field:ident: $type:ty),* $(,)? }) => {
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(super) struct $name {
            $($(#[$m])* #[serde(default, deserialize_with = "given")] pub $field: Option<$type>,)*
        }

        #[cfg(test)]
        impl $name {
            /// The keys that are read, for the test that compares them with the published schema.
            pub(super) const KEYS: &'static [&'static str] = &[$(stringify!($field)),*];
        }
    };
}

keys!(Root {
    version: Spanned<Scalar>,
    owners: List,
    roles: Entries<RawRole>,
    engines: Entries<RawEngine>,
    strip: List,
    include: List,
    refs: List,
    branch: Spanned<String>,
    agent_branches: List,
    tier: Spanned<Tier>,
    network: Spanned<Network>,
    approval: RawApproval,
    protect: Entries<Spanned<Protection>>,
    risk: List,
    retention: RawRetention,
    pool: Spanned<Scalar>,
    ledger: RawLedger,
});

keys!(RawRole {
    kind: Spanned<RoleKind>,
    paths: RawPaths,
    engines: List,
    setup: Spanned<RawSetup>,
    checks: Entries<Words>,
    teardown: Spanned<Vec<Words>>,
    env: List,
    limits: RawLimits,
});

keys!(RawPaths { allow: List, deny: List });

keys!(RawSetup {
    run: Spanned<Vec<Words>>,
    network: Spanned<Network>,
    env: List,
    wall: Spanned<Scalar>,
});

keys!(RawLimits {
    wall: Spanned<Scalar>,
    files: Spanned<Scalar>,
    lines: Spanned<Scalar>,
    bytes: Spanned<Scalar>,
    blob: Spanned<Scalar>,
});

keys!(RawEngine {
    command: Words,
    isolation: Spanned<Isolation>,
    decline_exit: Spanned<Scalar>,
    env: List,
});

keys!(RawApproval {
    count: Spanned<Scalar>,
    signed: Spanned<Scalar>,
    two_person: Spanned<Scalar>,
    expiry: Spanned<Scalar>,
    mode: Spanned<LandingMode>,
    signers: Entries<Spanned<SignerRole>>,
});

keys!(RawRetention {
    snapshots: Spanned<Scalar>,
    keep_tree: Spanned<Scalar>,
});

keys!(RawLedger {
    task: Spanned<TaskText>,
});
