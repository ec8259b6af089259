// Series on top of each other: positive values upwards from zero, negative ones downwards.
import type { Series } from '../live/model'

export type Stacked = { x: number[]; y: number[]; low: number[]; high: number[] }

/** Areas of the series at the steps that all of them have; `y` is the side away from zero. */
export function stack(all: Series[]): Stacked[] {
  const maps = all.map((series) => new Map(series.x.map((x, index) => [x, series.y[index]!])))
  const steps = (all[0]?.x ?? []).filter((x) => maps.every((map) => map.has(x)))
  const up = steps.map(() => 0)
  const down = steps.map(() => 0)
  return maps.map((map) => {
    const area: Stacked = { x: steps, y: [], low: [], high: [] }
    steps.forEach((x, index) => {
      const value = map.get(x)!
      const side = value >= 0 ? up : down
      const from = side[index]!
      const to = from + value
      side[index] = to
      area.low.push(Math.min(from, to))
      area.high.push(Math.max(from, to))
      area.y.push(to)
    })
    return area
  })
}
