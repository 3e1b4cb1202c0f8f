//! [`TimeTable`]: measured times by rows and context.

/// Row counts told apart: every one below 8, four to the octave above.
const ROW_CELLS: usize = 64;
/// Context lengths told apart: powers of four from 256.
const CONTEXT_CELLS: usize = 8;
/// Weight of the newest measurement once a cell has enough of them.
const FRESH: f64 = 0.1;
/// A measurement above this multiple of a settled cell is taken for an accident and cut to it.
const OUTLIER: f64 = 3.0;

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
    if rows < 8 {
        return rows - 1;
    }
    let octave = rows.ilog2();
    let quarter = (rows >> (octave - 2)) & 3;
    ((octave as usize - 3) * 4 + 7 + quarter).min(ROW_CELLS - 1)
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
        for cell in own.iter().filter(|cell| cell.is_known()) {
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

    /// Takes a one-row pass to be of this length, for want of a measurement.
    pub(super) fn assume(&mut self, time_s: f64) {
        self.points.clear();
        self.points.push((1.0, time_s));
    }

    /// Seconds for a pass of `rows`: a straight line between measured points. Beyond them it errs
    /// to the cheap side, so that what was never measured is tried, and then known: below, in
    /// proportion to the rows; above, by the slope of the last two points or the assumed cost of a
    /// row. Without any measurement, in one-row passes.
    pub(super) fn at(&self, rows: f64) -> f64 {
        let above = self.points.partition_point(|&(r, _)| r < rows);
        match (above.checked_sub(1).map(|i| self.points[i]), self.points.get(above)) {
            (None, None) => self.shape(rows),
            (None, Some(&(r, t))) => t * rows / r,
            (Some(a), Some(&b)) => a.1 + (b.1 - a.1) * (rows - a.0) / (b.0 - a.0).max(1e-9),
            (Some(b), None) => match above.checked_sub(2).map(|i| self.points[i]) {
                None => b.1 * self.shape(rows) / self.shape(b.0),
                Some(a) => b.1 + ((b.1 - a.1) / (b.0 - a.0).max(1e-9)).max(0.0) * (rows - b.0),
            },
        }
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
