//! Which instructions may be used.

use redline_spec::rowmath::RowMath;

/// An instruction-set level this machine has. It can only be made by detection, so holding one is
/// the proof that its instructions exist. All levels compute the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level(Kind);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "aarch64")]
    Neon,
}

/// A level that does not exist, or not on this machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("kernel level {name:?} is not available on this machine (available: {available})")]
pub struct LevelError {
    /// What was asked for.
    pub name: String,
    /// What there is.
    pub available: String,
}

impl Level {
    /// The best this machine has.
    pub fn detect() -> Self {
        Self::available().last().copied().unwrap_or(Self::portable())
    }

    /// Plain Rust, on every machine; slow.
    pub const fn portable() -> Self {
        Self(Kind::Portable)
    }

    /// All levels this machine has, slowest first.
    pub fn available() -> Vec<Self> {
        #[cfg_attr(
            not(any(target_arch = "x86_64", target_arch = "aarch64")),
            expect(unused_mut, reason = "only these have more levels")
        )]
        let mut all = vec![Self::portable()];
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("f16c");
            let avx512 = avx2
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512vnni");
            all.extend(avx2.then_some(Self(Kind::Avx2)));
            all.extend(avx512.then_some(Self(Kind::Avx512)));
        }
        #[cfg(target_arch = "aarch64")]
        {
            let dotprod = std::arch::is_aarch64_feature_detected!("neon")
                && std::arch::is_aarch64_feature_detected!("dotprod");
            all.extend(dotprod.then_some(Self(Kind::Neon)));
        }
        all
    }

    /// The level called `name` (`portable`, `avx2`, `avx512`, `neon`), to force one.
    ///
    /// # Errors
    /// [`LevelError`] if there is none of that name here.
    pub fn named(name: &str) -> Result<Self, LevelError> {
        let all = Self::available();
        all.iter().copied().find(|l| l.name() == name).ok_or_else(|| LevelError {
            name: name.to_owned(),
            available: all.iter().map(|l| l.name()).collect::<Vec<_>>().join(", "),
        })
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self.0 {
            Kind::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => "avx512",
            #[cfg(target_arch = "aarch64")]
            Kind::Neon => "neon",
        }
    }

    /// The loops over rows of logits that sampling needs, for this level.
    pub const fn row_math(self) -> &'static dyn RowMath {
        match self.0 {
            Kind::Portable => &Self(Kind::Portable),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => &Self(Kind::Avx2),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => &Self(Kind::Avx512),
            #[cfg(target_arch = "aarch64")]
            Kind::Neon => &Self(Kind::Neon),
        }
    }

    pub(super) const fn kind(self) -> Kind {
        self.0
    }
}

/// Defines `fn name(level, args…)` that runs `body(isa, args…)` compiled for the level's
/// instructions. `body` must be `#[inline(always)]` and generic over [`super::isa::Isa`]; `fn name<T: Bound,
/// const N: usize>` hands on a type and a number, too.
macro_rules! dispatch {
    ($(#[$meta:meta])* $vis:vis fn $name:ident $(<$of:ident: $bound:path, const $n:ident: usize>)?(
        $($arg:ident: $ty:ty),* $(,)?
    ) $(-> $ret:ty)? = $body:ident) => {
        $(#[$meta])*
        $vis fn $name $(<$of: $bound, const $n: usize>)?(level: $crate::kernels::Level, $($arg: $ty),*) $(-> $ret)? {
            use $crate::kernels::level::Kind;
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
            fn avx512 $(<$of: $bound, const $n: usize>)?($($arg: $ty),*) $(-> $ret)? {
                // SAFETY: this function runs only where these features exist.
                $body::<_ $(, $of, $n)?>(unsafe { $crate::kernels::isa_avx512::Avx512::new() }, $($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            fn avx2 $(<$of: $bound, const $n: usize>)?($($arg: $ty),*) $(-> $ret)? {
                // SAFETY: this function runs only where these features exist.
                $body::<_ $(, $of, $n)?>(unsafe { $crate::kernels::isa_avx2::Avx2::new() }, $($arg),*)
            }
            #[cfg(target_arch = "aarch64")]
            #[target_feature(enable = "neon,dotprod")]
            fn neon $(<$of: $bound, const $n: usize>)?($($arg: $ty),*) $(-> $ret)? {
                // SAFETY: this function runs only where these features exist.
                $body::<_ $(, $of, $n)?>(unsafe { $crate::kernels::isa_neon::Neon::new() }, $($arg),*)
            }
            match level.kind() {
                // SAFETY: a `Level` of this kind is made only after detecting every feature named
                // above.
                #[cfg(target_arch = "x86_64")]
                Kind::Avx512 => unsafe { avx512 $(::<$of, $n>)? ($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                Kind::Avx2 => unsafe { avx2 $(::<$of, $n>)? ($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "aarch64")]
                Kind::Neon => unsafe { neon $(::<$of, $n>)? ($($arg),*) },
                Kind::Portable => $body::<_ $(, $of, $n)?>($crate::kernels::isa::Portable, $($arg),*),
            }
        }
    };
}
pub(super) use dispatch;
