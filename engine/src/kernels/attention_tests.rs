//! Attention against plain softmax, and against itself wherever positions are stored.

use super::attention::{self, Input, Plane, Shape, Sight, attention};
use super::tests::{Random, bits};
use super::{Level, Pool};

/// A cache with random content, and queries.
struct Scene {
    shape: Shape,
    k: Vec<half::f16>,
    v: Vec<half::f16>,
    q: Vec<f32>,
    tables: Vec<u32>,
    extras: Vec<u32>,
    sights: Vec<Sight>,
}

impl Scene {
    fn run(&self, level: Level, threads: usize) -> Vec<f32> {
        let mut out = vec![f32::NAN; self.q.len()];
        let input = Input {
            shape: self.shape,
            k: Plane::F16(&self.k),
            v: Plane::F16(&self.v),
            q: &self.q,
            sights: &self.sights,
            tables: &self.tables,
            extras: &self.extras,
        };
        let mut pool = Pool::new(threads).unwrap();
        attention(level, &mut pool, input, &mut out, &mut attention::Scratch::default());
        out
    }
}

/// Rows of a chain that ends at `len`: row `i` sees `len - rows + 1 + i` positions, over a shuffled
/// block table.
fn chain(head_dim: usize, len: usize, rows: usize) -> Scene {
    let shape = Shape { heads: 6, kv_heads: 2, head_dim, block_size: 8, scale: 0.2 };
    let blocks = len.div_ceil(8);
    let values = |seed| {
        Random(seed).vec(blocks * 8 * 2 * head_dim).into_iter().map(half::f16::from_f32).collect()
    };
    // 7 is coprime to the counts used, so that this is a permutation.
    let tables = (0..blocks as u32).map(|b| b * 7 % blocks as u32).collect();
    let sight = |i| Sight { prefix: len - rows + 1 + i, extras: 0..0, table: 0..blocks, seq: 0 };
    Scene {
        shape,
        k: values(1),
        v: values(2),
        q: Random(3).vec(rows * 6 * head_dim),
        tables,
        extras: Vec::new(),
        sights: (0..rows).map(sight).collect(),
    }
}

#[test]
fn attention_is_softmax_of_scores() {
    for (head_dim, len, rows) in [(16, 1, 1), (64, 33, 3), (128, 100, 9), (20, 65, 2)] {
        let scene = chain(head_dim, len, rows);
        let out = scene.run(Level::detect(), 2);
        for (r, sight) in scene.sights.iter().enumerate() {
            for h in 0..6 {
                let q = &scene.q[(r * 6 + h) * head_dim..][..head_dim];
                let at =
                    |p: usize| ((scene.tables[p / 8] as usize * 8 + p % 8) * 2 + h / 3) * head_dim;
                let score = |p: usize| -> f64 {
                    let k = &scene.k[at(p)..][..head_dim];
                    q.iter().zip(k).map(|(&q, k)| f64::from(q) * k.to_f64()).sum::<f64>() * 0.2
                };
                let weights: Vec<f64> = (0..sight.prefix).map(|p| score(p).exp()).collect();
                let mass: f64 = weights.iter().sum();
                for d in 0..head_dim {
                    let exact: f64 = weights
                        .iter()
                        .enumerate()
                        .map(|(p, w)| w * scene.v[at(p) + d].to_f64())
                        .sum::<f64>()
                        / mass;
                    let ours = f64::from(out[(r * 6 + h) * head_dim + d]);
                    assert!(
                        (ours - exact).abs() < 2e-5,
                        "{head_dim} {len} row {r}: {ours} {exact}"
                    );
                }
            }
        }
    }
}

#[test]
fn attention_is_the_same_at_every_level_thread_count_and_row_count() {
    for (head_dim, len, rows) in [(64, 77, 20), (128, 40, 9), (20, 65, 33)] {
        let scene = chain(head_dim, len, rows);
        let all = bits(&scene.run(Level::portable(), 1));
        for level in Level::available() {
            for threads in 1..=4 {
                assert_eq!(bits(&scene.run(level, threads)), all, "{} {threads}", level.name());
            }
        }
        // Each row alone.
        let width = 6 * head_dim;
        for r in 0..rows {
            let mut one = chain(head_dim, len, rows);
            one.sights = vec![scene.sights[r].clone()];
            one.q = scene.q[r * width..][..width].to_vec();
            assert_eq!(bits(&one.run(Level::detect(), 2)), all[r * width..][..width]);
        }
    }
}

#[test]
fn where_a_position_is_stored_does_not_matter() {
    let (head_dim, len) = (64, 70);
    let chain_bits = {
        let scene = chain(head_dim, len, 1);
        bits(&scene.run(Level::detect(), 1))
    };
    // The last 40 positions are listed as ancestors and stored in the blocks in reverse.
    for listed in [1, 5, 40] {
        let mut scene = chain(head_dim, len, 1);
        let straight = chain(head_dim, len, 1);
        let row = 2 * head_dim;
        let at = |slot: usize| (scene.tables[slot / 8] as usize * 8 + slot % 8) * row;
        let (from, to): (Vec<usize>, Vec<usize>) =
            (len - listed..len).map(|p| (at(p), at(2 * len - listed - 1 - p))).unzip();
        for (&from, &to) in from.iter().zip(&to) {
            scene.k[to..to + row].copy_from_slice(&straight.k[from..from + row]);
            scene.v[to..to + row].copy_from_slice(&straight.v[from..from + row]);
        }
        scene.extras = (len - listed..len).rev().map(|s| s as u32).collect();
        scene.sights = vec![Sight {
            prefix: len - listed,
            extras: 0..listed,
            table: scene.sights[0].table.clone(),
            seq: 0,
        }];
        assert_eq!(bits(&scene.run(Level::detect(), 1)), chain_bits, "{listed} listed");
    }
}

#[test]
fn what_a_row_does_not_see_does_not_matter() {
    let mut scene = chain(64, 70, 3);
    let clean = bits(&scene.run(Level::detect(), 1));
    // Position 69 is seen by the last row only.
    let at = (scene.tables[69 / 8] as usize * 8 + 69 % 8) * 2 * 64;
    scene.v[at..at + 128].fill(half::f16::NAN);
    scene.k[at..at + 128].fill(half::f16::NAN);
    let out = bits(&scene.run(Level::detect(), 1));
    assert_eq!(out[..2 * 6 * 64], clean[..2 * 6 * 64]);
    assert!(out[2 * 6 * 64..].iter().all(|&x| f32::from_bits(x).is_nan()));
}
