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
    fn size(&self) -> usize {
        self.shape.block_size
    }

    /// Where dimension `d` of position `p`'s key (or value) of a KV head is.
    fn key(&self, p: usize, head: usize, d: usize) -> usize {
        let (block, dim) = (self.tables[p / self.size()] as usize, self.shape.head_dim);
        ((block * 2 + head) * dim + d) * self.size() + p % self.size()
    }

    fn value(&self, p: usize, head: usize, d: usize) -> usize {
        let (block, dim) = (self.tables[p / self.size()] as usize, self.shape.head_dim);
        ((block * 2 + head) * self.size() + p % self.size()) * dim + d
    }

    /// Calls `f` with the places of all keys and values of a position, here and where `q` is stored.
    fn places(&self, p: usize, q: usize, mut f: impl FnMut([usize; 2], [usize; 2])) {
        for (head, d) in (0..2).flat_map(|head| (0..self.shape.head_dim).map(move |d| (head, d))) {
            f(
                [self.key(p, head, d), self.key(q, head, d)],
                [self.value(p, head, d), self.value(q, head, d)],
            );
        }
    }

    fn run(&self, level: Level, threads: usize) -> Vec<f32> {
        let planes = (Plane::F16(&self.k), Plane::F16(&self.v));
        self.run_on(level, threads, planes, &mut attention::Scratch::default())
    }

    fn run_on(
        &self,
        level: Level,
        threads: usize,
        (k, v): (Plane<'_>, Plane<'_>),
        scratch: &mut attention::Scratch,
    ) -> Vec<f32> {
        let mut out = vec![f32::NAN; self.q.len()];
        let input = Input {
            shape: self.shape,
            k,
            v,
            q: &self.q,
            sights: &self.sights,
            tables: &self.tables,
            extras: &self.extras,
        };
        let mut pool = Pool::new(threads).unwrap();
        attention(level, &mut pool, input, &mut out, scratch);
        out
    }
}

/// Rows of a chain that ends at `len`: row `i` sees `len - rows + 1 + i` positions, over a shuffled
/// block table.
fn chain(head_dim: usize, len: usize, rows: usize) -> Scene {
    chain_in(8, head_dim, len, rows)
}

/// The same with blocks of a size. What is stored of a position does not depend on it.
fn chain_in(size: usize, head_dim: usize, len: usize, rows: usize) -> Scene {
    let shape = Shape { heads: 6, kv_heads: 2, head_dim, block_size: size, scale: 0.2 };
    let blocks = len.div_ceil(size);
    let all = blocks * size * 2 * head_dim;
    // 7 is coprime to the counts used, so that this is a permutation.
    let tables: Vec<u32> = (0..blocks as u32).map(|b| b * 7 % blocks as u32).collect();
    let sight = |i| Sight { prefix: len - rows + 1 + i, extras: 0..0, table: 0..blocks, seq: 0 };
    let mut scene = Scene {
        shape,
        k: vec![half::f16::NAN; all],
        v: vec![half::f16::NAN; all],
        q: Random(3).vec(rows * 6 * head_dim),
        tables,
        extras: Vec::new(),
        sights: (0..rows).map(sight).collect(),
    };
    let mut random = Random(1);
    for p in 0..len {
        let values = random.vec(4 * head_dim);
        for (i, pair) in values.as_chunks().0.iter().enumerate() {
            let [k, v] = pair.map(half::f16::from_f32);
            let (key, value) = (
                scene.key(p, i / head_dim, i % head_dim),
                scene.value(p, i / head_dim, i % head_dim),
            );
            (scene.k[key], scene.v[value]) = (k, v);
        }
    }
    scene
}

#[test]
fn attention_is_softmax_of_scores() {
    let sizes = [(16, 1, 1), (64, 33, 3), (128, 100, 9), (20, 70, 2), (80, 64, 3), (96, 40, 2)];
    let sizes = sizes.map(|size| (32, size)).into_iter().chain([(8, (20, 65, 2))]);
    for (size, (head_dim, len, rows)) in sizes {
        let scene = chain_in(size, head_dim, len, rows);
        let out = scene.run(Level::detect(), 2);
        for (r, sight) in scene.sights.iter().enumerate() {
            for h in 0..6 {
                let q = &scene.q[(r * 6 + h) * head_dim..][..head_dim];
                let score = |p: usize| -> f64 {
                    let k = |d| scene.k[scene.key(p, h / 3, d)].to_f64();
                    q.iter().enumerate().map(|(d, &q)| f64::from(q) * k(d)).sum::<f64>() * 0.2
                };
                let weights: Vec<f64> = (0..sight.prefix).map(|p| score(p).exp()).collect();
                let mass: f64 = weights.iter().sum();
                for d in 0..head_dim {
                    let exact: f64 = weights
                        .iter()
                        .enumerate()
                        .map(|(p, w)| w * scene.v[scene.value(p, h / 3, d)].to_f64())
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
    let scenes =
        [(32, 64, 77, 20), (32, 128, 40, 9), (8, 20, 65, 33), (32, 112, 97, 7), (32, 20, 66, 5)];
    for (size, head_dim, len, rows) in scenes {
        let scene = chain_in(size, head_dim, len, rows);
        let all = bits(&scene.run(Level::portable(), 1));
        for level in Level::available() {
            for threads in 1..=4 {
                assert_eq!(bits(&scene.run(level, threads)), all, "{} {threads}", level.name());
            }
        }
        // Each row alone.
        let width = 6 * head_dim;
        for r in 0..rows {
            let mut one = chain_in(size, head_dim, len, rows);
            one.sights = vec![scene.sights[r].clone()];
            one.q = scene.q[r * width..][..width].to_vec();
            assert_eq!(bits(&one.run(Level::detect(), 2)), all[r * width..][..width]);
        }
    }
}

#[test]
fn where_a_position_is_stored_does_not_matter() {
    let (head_dim, len) = (64, 70);
    let chain_bits = bits(&chain(head_dim, len, 1).run(Level::detect(), 1));
    for size in [8, 16, 32, 64] {
        let straight = chain_in(size, head_dim, len, 1);
        assert_eq!(bits(&straight.run(Level::detect(), 1)), chain_bits, "blocks of {size}");
        // The last positions are listed as ancestors and stored in the blocks in reverse.
        for listed in [1, 5, 40] {
            let mut scene = chain_in(size, head_dim, len, 1);
            for p in len - listed..len {
                straight.places(p, 2 * len - listed - 1 - p, |k, v| {
                    scene.k[k[1]] = straight.k[k[0]];
                    scene.v[v[1]] = straight.v[v[0]];
                });
            }
            scene.extras = (len - listed..len).rev().map(|s| s as u32).collect();
            scene.sights = vec![Sight {
                prefix: len - listed,
                extras: 0..listed,
                table: scene.sights[0].table.clone(),
                seq: 0,
            }];
            let out = bits(&scene.run(Level::detect(), 1));
            assert_eq!(out, chain_bits, "{listed} listed, blocks of {size}");
        }
    }
}

#[test]
fn what_a_row_does_not_see_does_not_matter() {
    for size in [8, 32] {
        let mut scene = chain_in(size, 64, 70, 3);
        let clean = bits(&scene.run(Level::detect(), 1));
        // Position 69 is seen by the last row only.
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        scene.places(69, 69, |k, v| {
            keys.push(k[0]);
            values.push(v[0]);
        });
        keys.into_iter().for_each(|at| scene.k[at] = half::f16::NAN);
        values.into_iter().for_each(|at| scene.v[at] = half::f16::NAN);
        let out = bits(&scene.run(Level::detect(), 1));
        assert_eq!(out[..2 * 6 * 64], clean[..2 * 6 * 64]);
        assert!(out[2 * 6 * 64..].iter().all(|&x| f32::from_bits(x).is_nan()));
    }
}

/// Buffers that another shape has used, and a cache in single precision.
#[test]
fn what_buffers_held_before_does_not_matter_nor_the_type_of_the_same_values() {
    let mut scratch = attention::Scratch::default();
    for (size, head_dim, len, rows) in
        [(32, 128, 100, 9), (32, 20, 70, 3), (8, 64, 33, 2), (32, 20, 33, 1)]
    {
        let scene = chain_in(size, head_dim, len, rows);
        let expected = bits(&scene.run(Level::portable(), 1));
        let single = |values: &[half::f16]| values.iter().map(|x| x.to_f32()).collect::<Vec<_>>();
        let (k, v) = (single(&scene.k), single(&scene.v));
        for level in Level::available() {
            let halves = (Plane::F16(&scene.k), Plane::F16(&scene.v));
            assert_eq!(bits(&scene.run_on(level, 2, halves, &mut scratch)), expected);
            let singles = (Plane::F32(&k), Plane::F32(&v));
            assert_eq!(bits(&scene.run_on(level, 2, singles, &mut scratch)), expected);
        }
    }
}

/// Two branches behind one prefix: rows share its tiles, and each has a last tile of its own.
#[test]
fn rows_of_a_tree_have_the_bits_of_chains() {
    for (prefix, size) in [(64, 32), (70, 32), (31, 32), (70, 8)] {
        let whole = chain_in(size, 64, prefix + 4, 1);
        // Slots behind the prefix: a, b, and their children c and d.
        let branches: [&[u32]; 4] = [&[0], &[1], &[0, 2], &[1, 3]];
        let mut tree = chain_in(size, 64, prefix + 4, 1);
        tree.q = Random(9).vec(branches.len() * 6 * 64);
        let table = whole.sights[0].table.clone();
        tree.sights.clear();
        for branch in branches {
            let start = tree.extras.len();
            tree.extras.extend(branch.iter().map(|slot| prefix as u32 + slot));
            let extras = start..tree.extras.len();
            tree.sights.push(Sight { prefix, extras, table: table.clone(), seq: 0 });
        }
        let all = bits(&tree.run(Level::detect(), 2));
        for (row, branch) in branches.iter().enumerate() {
            let mut alone = chain_in(size, 64, prefix + 4, 1);
            for (i, &slot) in branch.iter().enumerate() {
                whole.places(prefix + slot as usize, prefix + i, |k, v| {
                    alone.k[k[1]] = whole.k[k[0]];
                    alone.v[v[1]] = whole.v[v[0]];
                });
            }
            alone.q = tree.q[row * 6 * 64..][..6 * 64].to_vec();
            let sight =
                Sight { prefix: prefix + branch.len(), extras: 0..0, table: table.clone(), seq: 0 };
            alone.sights = vec![sight];
            let chain = bits(&alone.run(Level::detect(), 1));
            assert_eq!(
                chain,
                all[row * 6 * 64..][..6 * 64],
                "row {row} behind {prefix}, blocks of {size}"
            );
        }
    }
}
