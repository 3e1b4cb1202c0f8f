//! [`TimeTable`]: measured times by rows and context.

use std::ops::RangeInclusive;

/// Row counts told apart: every one below 16, eight to the octave above.
const ROW_CELLS: usize = 96;
/// Context lengths told apart: powers of four from 256.
const CONTEXT_CELLS: usize = 8;
/// Weight of the newest measurement once a cell has enough of them.
const FRESH: f64 = 0.1;
/// A measurement above this multiple of a settled cell is taken for an accident and cut to it.
const OUTLIER: f64 = 3.0;
/// Ratio of row counts from which two points tell a slope.
const LEVER: f64 = 1.5;
/// Ratio of row counts up to which a point tells of another.
const NEAR: f64 = 1.2;

#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    rows: f64,
    time_s: f64,
    count: u32,
}

/// Seconds that a pass takes, by rows and mean context: running means in cells, straight lines
/// between them.
#[derive(Clone, Debug)]
pub(super) struct TimeTable {
    cells: Vec<[Cell; ROW_CELLS]>,
    /// Cost assumed of one more row, in one-row passes.
    row_cost: f64,
}

/// Times by rows at one context: measured points, rows ascending.
#[derive(Clone, Debug, Default)]
pub(super) struct Curve {
    points: Vec<(f64, f64)>,
    row_cost: f64,
}

fn row_cell(rows: usize) -> usize {
    let rows = rows.max(1);
    if rows < 16 {
        return rows - 1;
    }
    let octave = rows.ilog2();
    let eighth = (rows >> (octave - 3)) & 7;
    ((octave as usize - 4) * 8 + 15 + eighth).min(ROW_CELLS - 1)
}

fn context_cell(context: usize) -> usize {
    let octave = (context.max(1) / 128).max(1).ilog2() as usize;
    (octave / 2).min(CONTEXT_CELLS - 1)
}

impl TimeTable {
    pub(super) fn new(row_cost: f64) -> Self {
        Self { cells: vec![[Cell::default(); ROW_CELLS]; CONTEXT_CELLS], row_cost }
    }

    /// Takes in one measurement; nonsense is ignored.
    pub(super) fn observe(&mut self, rows: usize, context: usize, time_s: f64) {
        if rows == 0 || !time_s.is_finite() || time_s <= 0.0 {
            return;
        }
        let cell = &mut self.cells[context_cell(context)][row_cell(rows)];
        let settled = cell.count >= 4;
        let time_s = if settled { time_s.min(OUTLIER * cell.time_s) } else { time_s };
        cell.count = cell.count.saturating_add(1);
        let weight = FRESH.max(1.0 / f64::from(cell.count));
        cell.time_s += weight * (time_s - cell.time_s);
        cell.rows += weight * (rows as f64 - cell.rows);
    }

    /// Whether passes of about `rows` rows were measured at `context`.
    pub(super) fn knows(&self, rows: usize, context: usize) -> bool {
        self.cells[context_cell(context)][row_cell(rows)].is_known()
    }

    /// The curve at `context`. Row counts not measured there are filled in from the nearest context
    /// that has any, scaled by how much longer passes take here. Keeps the buffer.
    pub(super) fn curve(&self, context: usize, curve: &mut Curve) {
        curve.points.clear();
        curve.row_cost = self.row_cost;
        let at = context_cell(context);
        let own = &self.cells[at];
        let nearest = (1..CONTEXT_CELLS).flat_map(|d| [at.checked_sub(d), at.checked_add(d)]);
        let donors = nearest.flatten().filter_map(|at| self.cells.get(at));
        let donor = { donors }.find(|cells| cells.iter().any(Cell::is_known)).unwrap_or(own);
        curve.points.extend(donor.iter().filter(|cell| cell.is_known()).map(Cell::point));
        let (mut here, mut there) = (0.0, 0.0);
        let covered = covered(&curve.points);
        for cell in own.iter().filter(|cell| cell.is_known() && covered.contains(&cell.rows)) {
            here += cell.time_s;
            there += curve.at(cell.rows);
        }
        let scale = if there > 0.0 { here / there } else { 1.0 };
        curve.points.clear();
        for (own, other) in own.iter().zip(donor) {
            if own.is_known() {
                curve.points.push(own.point());
            } else if other.is_known() {
                curve.points.push((other.rows, other.time_s * scale));
            }
        }
    }
}

/// Row counts at which these points tell what a pass takes: beyond them it is a guess.
fn covered(points: &[(f64, f64)]) -> RangeInclusive<f64> {
    let ends = points.first().zip(points.last());
    ends.map_or(1.0..=0.0, |(first, last)| first.0 / LEVER..=last.0 * LEVER)
}

impl Cell {
    fn is_known(&self) -> bool {
        self.count > 0
    }

    fn point(&self) -> (f64, f64) {
        (self.rows, self.time_s)
    }
}

impl Curve {
    /// Whether anything was measured.
    pub(super) fn is_known(&self) -> bool {
        !self.points.is_empty()
    }

    /// As long as it has no slope of its own, takes that of another curve, but none steeper than is
    /// assumed of a row: from the last point measured or, for want of any, from an `assumed` one.
    pub(super) fn borrow(&mut self, other: &Self, assumed: (f64, f64)) {
        let (Some(&first), Some(&last)) = (self.points.first(), self.points.last()) else {
            self.points.push(assumed);
            return self.borrow(other, assumed);
        };
        if last.0 >= LEVER * first.0 {
            return;
        }
        let scale = last.1 / other.at(last.0);
        for &(rows, time_s) in other.points.iter().filter(|point| point.0 > last.0) {
            let steepest = last.1 * self.shape(rows) / self.shape(last.0);
            self.points.push((rows, steepest.min(scale * time_s)));
        }
    }

    /// Rows up to which the curve can be trusted: half as many again as the widest pass measured.
    pub(super) fn reach(&self) -> usize {
        let widest = self.points.last().map_or(0.0, |&(rows, _)| rows);
        (LEVER * widest).ceil() as usize + 2
    }

    /// Seconds for a pass of `rows`: a straight line between measured points. Where these lie far
    /// apart, by [`LEVER`], it errs to the cheap side, so that what was never measured is tried, and
    /// then known. Beyond all points the line goes on. Without a slope to go by: below, in proportion
    /// to the rows; above, by the assumed cost of a row. Without any point, in one-row passes.
    pub(super) fn at(&self, rows: f64) -> f64 {
        let above = self.points.partition_point(|&(r, _)| r < rows);
        match (above.checked_sub(1).map(|i| self.points[i]), self.points.get(above).copied()) {
            (None, None) => self.shape(rows),
            (None, Some(b)) => {
                let line = self.before(b, rows).unwrap_or_default();
                line.max(b.1 * rows / b.0)
            }
            (Some(a), Some(b)) => {
                let chord = a.1 + (b.1 - a.1) * (rows - a.0) / (b.0 - a.0).max(1e-9);
                // Close to the end of a gap, what was measured there is believed.
                if b.0 < LEVER * a.0 || NEAR * rows > b.0 {
                    return chord;
                }
                // Times bend upwards, if at all: both neighbouring lines pass below them.
                let bounds = [self.after(a, rows), self.before(b, rows)];
                bounds.into_iter().flatten().fold(f64::NAN, f64::max).min(chord)
            }
            (Some(b), None) => {
                let assumed = || b.1 * self.shape(rows) / self.shape(b.0);
                self.after(b, rows).unwrap_or_else(assumed)
            }
        }
    }

    /// Seconds at `rows` by the line that reaches the point from its left.
    fn after(&self, to: (f64, f64), rows: f64) -> Option<f64> {
        let from = self.points.iter().rfind(|from| LEVER * from.0 <= to.0)?;
        Some(to.1 + ((to.1 - from.1) / (to.0 - from.0)).max(0.0) * (rows - to.0))
    }

    /// Seconds at `rows` by the line that leaves the point to its right.
    fn before(&self, from: (f64, f64), rows: f64) -> Option<f64> {
        let to = self.points.iter().find(|to| to.0 >= LEVER * from.0)?;
        Some(from.1 - ((to.1 - from.1) / (to.0 - from.0)).max(0.0) * (from.0 - rows))
    }

    fn shape(&self, rows: f64) -> f64 {
        1.0 + self.row_cost * (rows - 1.0).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_ascend_and_stay_inside() {
        let mut last = 0;
        for rows in 0..100_000 {
            let cell = row_cell(rows);
            assert!(cell == last || cell == last + 1, "{rows}: {last} -> {cell}");
            last = cell;
        }
        assert!(last < ROW_CELLS);
        assert_eq!((context_cell(0), context_cell(511), context_cell(512)), (0, 0, 1));
        assert_eq!(context_cell(usize::MAX), CONTEXT_CELLS - 1);
    }

    #[test]
    fn lines_between_points_and_shape_beyond() {
        let mut table = TimeTable::new(0.1);
        let mut curve = Curve::default();
        table.curve(100, &mut curve);
        assert!(!curve.is_known());
        assert_eq!(curve.at(11.0), 2.0);
        table.observe(1, 100, 4.0);
        table.curve(9_000, &mut curve);
        assert_eq!((curve.at(0.5), curve.at(1.0), curve.at(11.0)), (2.0, 4.0, 8.0));
        table.observe(5, 100, 6.0);
        table.curve(100, &mut curve);
        assert_eq!((curve.at(3.0), curve.at(9.0)), (5.0, 8.0));
        table.observe(3, 100, f64::NAN);
        table.observe(3, 100, -1.0);
        table.observe(0, 100, 1.0);
        table.curve(100, &mut curve);
        assert_eq!(curve.points.len(), 2);
    }

    #[test]
    fn wide_gaps_err_to_the_cheap_side() {
        let points = vec![(1.0, 1.0), (8.0, 1.0), (32.0, 2.0), (64.0, 4.0)];
        let curve = Curve { points, row_cost: 0.1 };
        // Both lines: 1 from the left, 2 less 1/16 a row from the right.
        assert_eq!((curve.at(12.0), curve.at(16.0), curve.at(24.0)), (1.0, 1.0, 1.5));
        // At the end of the gap, the straight line.
        assert_eq!((curve.at(9.2), curve.at(29.0)), (1.0, 1.875));
        assert_eq!((curve.at(8.0), curve.at(32.0), curve.at(96.0)), (1.0, 2.0, 6.0));
        // Where times bend downwards it is the straight line.
        let points = vec![(1.0, 1.0), (8.0, 8.0), (32.0, 9.0)];
        assert_eq!(Curve { points, row_cost: 0.1 }.at(20.0), 8.5);
    }

    #[test]
    fn a_curve_without_a_slope_borrows_one_that_is_not_too_steep() {
        let other = Curve { points: vec![(1.0, 1.0), (11.0, 1.5), (21.0, 9.0)], row_cost: 0.1 };
        let mut curve = Curve { row_cost: 0.1, ..Curve::default() };
        curve.borrow(&other, (1.0, 0.2));
        assert_eq!(curve.points, [(1.0, 0.2), (11.0, 0.2 * 1.5), (21.0, 0.2 * 3.0)]);
        let mut curve = Curve { points: vec![(1.0, 2.0), (2.0, 3.0)], row_cost: 0.1 };
        curve.borrow(&other, (1.0, 0.2));
        assert_eq!(curve.points.len(), 2, "it has its own");
    }

    #[test]
    fn points_far_away_do_not_scale_a_context() {
        let mut table = TimeTable::new(0.1);
        table.observe(512, 100, 50.0);
        table.observe(1, 5_000, 1.0);
        let mut curve = Curve::default();
        table.curve(5_000, &mut curve);
        assert_eq!((curve.at(1.0), curve.at(512.0)), (1.0, 50.0));
    }

    #[test]
    fn a_new_context_borrows_the_shape() {
        let mut table = TimeTable::new(0.1);
        for (rows, time_s) in [(1, 1.0), (4, 2.0), (16, 6.0)] {
            table.observe(rows, 100, time_s);
        }
        let mut curve = Curve::default();
        table.observe(4, 5_000, 3.0);
        table.curve(5_000, &mut curve);
        assert_eq!((curve.at(1.0), curve.at(4.0), curve.at(16.0)), (1.5, 3.0, 9.0));
        table.curve(100, &mut curve);
        assert_eq!((curve.at(1.0), curve.at(4.0), curve.at(16.0)), (1.0, 2.0, 6.0));
    }
}
