//! Declares a type together with a description of itself, for what crosses the border to TypeScript: from the description,
//! `leasehold-wasm` makes the TypeScript types and a fingerprint that both sides compare. It must never decide anything.

/// A type that crosses the border.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Its name in Rust.
    pub name: &'static str,
    /// Its documentation, line by line.
    pub doc: &'static [&'static str],
    /// One without a name for a struct; for an enum those that its member `do` tells apart.
    pub variants: &'static [VariantShape],
}

/// A variant of it.
#[derive(Clone, Copy, Debug)]
pub struct VariantShape {
    /// Its name in Rust.
    pub name: &'static str,
    /// Its documentation, line by line.
    pub doc: &'static [&'static str],
    /// What it has.
    pub fields: &'static [FieldShape],
}

/// A field of it.
#[derive(Clone, Copy, Debug)]
pub struct FieldShape {
    /// Its name in Rust.
    pub name: &'static str,
    /// Its documentation, line by line.
    pub doc: &'static [&'static str],
    /// Its type in Rust.
    pub kind: &'static str,
}

/// Declares a struct, or an enum whose variants are told apart by `do`, that is written as JSON and describes itself. Members
/// that are `None`, or an empty list, are left out.
#[macro_export]
macro_rules! shape {
    (
        $(#[doc = $doc:literal])*
        $(#[derive($($derive:ident),*)])?
        pub struct $name:ident$(<$life:lifetime>)? {
            $( $(#[doc = $field_doc:literal])* pub $field:ident: $kind:ty ),* $(,)?
        }
    ) => {
        $(#[doc = $doc])*
        $(#[derive($($derive),*)])?
        #[allow(missing_docs)] // a view's fields are those of the type that it shows
        pub struct $name$(<$life>)? {
            $( $(#[doc = $field_doc])* pub $field: $kind ),*
        }

        impl$(<$life>)? $crate::wire::json::Json for $name$(<$life>)? {
            #[inline(never)] // one copy of it, however many members have this type
            fn write(&self, out: &mut Vec<u8>) {
                $crate::wire::json::begin_object("", out);
                $( $crate::wire::json::Json::write_member(&self.$field, stringify!($field), out); )*
                out.push(b'}');
            }
        }

        impl$(<$life>)? $name$(<$life>)? {
            /// What it looks like to TypeScript.
            pub const SHAPE: $crate::wire::shape::Shape = $crate::wire::shape::Shape {
                name: stringify!($name),
                doc: &[$($doc),*],
                variants: &[$crate::wire::shape::VariantShape { name: "", doc: &[], fields: &[ $( $crate::wire::shape::FieldShape {
                    name: stringify!($field),
                    doc: &[$($field_doc),*],
                    kind: stringify!($kind),
                } ),* ] }],
            };
        }
    };
    (
        $(#[doc = $doc:literal])*
        $(#[derive($($derive:ident),*)])?
        pub enum $name:ident$(<$life:lifetime>)? { $(
            $(#[doc = $variant_doc:literal])*
            $variant:ident {
                $( $(#[doc = $field_doc:literal])* $field:ident: $kind:ty ),* $(,)?
            }
        ),* $(,)? }
    ) => {
        $(#[doc = $doc])*
        $(#[derive($($derive),*)])?
        pub enum $name$(<$life>)? { $(
            $(#[doc = $variant_doc])*
            $variant {
                $( $(#[doc = $field_doc])* $field: $kind ),*
            }
        ),* }

        impl$(<$life>)? $crate::wire::json::Json for $name$(<$life>)? {
            fn write(&self, out: &mut Vec<u8>) {
                match self { $(
                    Self::$variant { $($field),* } => {
                        $crate::wire::json::begin_object(stringify!($variant), out);
                        $( $crate::wire::json::Json::write_member($field, stringify!($field), out); )*
                    }
                ),* }
                out.push(b'}');
            }
        }

        impl$(<$life>)? $name$(<$life>)? {
            /// What it looks like to TypeScript.
            pub const SHAPE: $crate::wire::shape::Shape = $crate::wire::shape::Shape {
                name: stringify!($name),
                doc: &[$($doc),*],
                variants: &[ $( $crate::wire::shape::VariantShape {
                    name: stringify!($variant),
                    doc: &[$($variant_doc),*],
                    fields: &[ $( $crate::wire::shape::FieldShape {
                        name: stringify!($field),
                        doc: &[$($field_doc),*],
                        kind: stringify!($kind),
                        } ),* ],
                } ),* ],
            };
        }
    };
}

/// Where a hash begins.
pub const START: u32 = 0x811C_9DC5;

/// Adds declarations to a hash (FNV-1a). Documentation does not count, nor does white space: how a compiler writes a type
/// out is its own affair.
#[allow(clippy::indexing_slicing)] // a constant cannot iterate
pub const fn hash(shapes: &[Shape], mut hash: u32) -> u32 {
    let mut at = 0;
    while at < shapes.len() {
        hash = one(&shapes[at], hash);
        at += 1;
    }
    hash
}

#[allow(clippy::indexing_slicing)] // a constant cannot iterate
const fn one(shape: &Shape, mut hash: u32) -> u32 {
    hash = word(shape.name, hash);
    let mut at = 0;
    while at < shape.variants.len() {
        let variant = &shape.variants[at];
        hash = word(variant.name, hash);
        let mut field = 0;
        while field < variant.fields.len() {
            hash = word(variant.fields[field].name, hash);
            hash = word(variant.fields[field].kind, hash);
            field += 1;
        }
        at += 1;
    }
    hash
}

/// Adds a word, and a mark after it, so that `ab` and `c` are not `a` and `bc`.
#[allow(clippy::indexing_slicing)] // a constant cannot iterate
pub const fn word(text: &str, mut hash: u32) -> u32 {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        if !bytes[at].is_ascii_whitespace() {
            hash = (hash ^ bytes[at] as u32).wrapping_mul(0x0100_0193);
        }
        at += 1;
    }
    (hash ^ 0xFF).wrapping_mul(0x0100_0193)
}
