// What is compared: sessions, iterations and members, as the address names them, and the curves of each.
import type { Iteration } from '../gen/dressage/v1/session_pb'
import type { IterationLive, Series } from '../live/model'

/** `iteration` 0 is the session as a whole, `member` '' the iteration as a whole. */
export type Item = { session: string; iteration: number; member: string }

export const MOST_ITEMS = 8

export function itemKey(item: Item): string {
  return [item.session, ...(item.iteration > 0 ? [item.iteration] : []), ...(item.member === '' ? [] : [item.member])].join('/')
}

/** The items of an address, such as `s-1,s-2/3,s-2/3/default-s0`; what is not understood is left out. */
export function parseItems(text: string): Item[] {
  const items = new Map<string, Item>()
  for (const word of text.split(',')) {
    const [, session, iteration = '0', member = ''] = /^([a-z][a-z0-9-]*)(?:\/([1-9][0-9]{0,5})(?:\/([A-Za-z0-9_-]+))?)?$/.exec(word.trim()) ?? []
    if (session === undefined || items.size >= MOST_ITEMS) continue
    const item = { session, iteration: Number(iteration), member }
    items.set(itemKey(item), item)
  }
  return [...items.values()]
}

export function formatItems(items: Item[]): string {
  return items.map(itemKey).join(',')
}

export type Band = Series & { low: number[]; high: number[] }

/** Mean and range over several series, by straight lines between their points, where all of them have values. */
export function average(all: Series[]): Band {
  const drawn = all.filter((series) => series.x.length > 0)
  const band: Band = { x: [], y: [], low: [], high: [] }
  if (drawn.length === 0) return band
  const first = Math.max(...drawn.map((series) => series.x[0]!))
  const last = Math.min(...drawn.map((series) => series.x.at(-1)!))
  const steps = [...new Set(drawn.flatMap((series) => series.x))].filter((x) => x >= first && x <= last).sort((a, b) => a - b)
  const at = drawn.map(() => 0)
  for (const x of steps) {
    const values = drawn.map((series, index) => {
      while (at[index]! + 1 < series.x.length && series.x[at[index]! + 1]! <= x) at[index]! += 1
      const from = at[index]!
      const [x0, y0] = [series.x[from]!, series.y[from]!]
      const [x1, y1] = [series.x[from + 1] ?? x0, series.y[from + 1] ?? y0]
      return x1 > x0 ? y0 + ((x - x0) / (x1 - x0)) * (y1 - y0) : y0
    })
    band.x.push(x)
    band.y.push(values.reduce((sum, value) => sum + value, 0) / values.length)
    band.low.push(Math.min(...values))
    band.high.push(Math.max(...values))
  }
  return band
}

/** The curve of a metric: of a member, or over the seeds of the iteration's best config. */
export function curveOf(at: IterationLive | undefined, member: string, bestConfig: string, metric: string): Band {
  const all = [...(at?.members.values() ?? [])]
  const chosen = member !== '' ? all.filter((entry) => entry.id === member) : bestConfig === '' ? all : all.filter((entry) => entry.config === bestConfig)
  return average(chosen.map((entry) => entry.metrics.get(metric) ?? { x: [], y: [] }))
}

/** Best score of a search so far, over the episodes (for programs: the programs) of the iterations, as `dressage report` counts them. */
export function searchCurve(iterations: Iteration[]): Series {
  const curve: Series = { x: [], y: [] }
  let played = 0
  let best = Number.NEGATIVE_INFINITY
  for (const iteration of iterations) {
    const { points, all } = searchPoints(iteration)
    for (const [within, score] of points) {
      best = Math.max(best, score)
      const x = played + within
      if (curve.x.at(-1) === x) curve.y[curve.y.length - 1] = best
      else {
        curve.x.push(x)
        curve.y.push(best)
      }
    }
    played += all
  }
  return curve
}

type Points = { points: [number, number][]; all: number }

function searchPoints({ proposal }: Iteration): Points {
  if (proposal.case === 'program') {
    const { search, candidates } = proposal.value
    if (search === undefined || search.evaluated === 0n) {
      return { points: candidates.map((entry, index) => [index + 1, entry.meanReturn]), all: candidates.length }
    }
    const all = Number(search.evaluated)
    return { points: [...search.improvements.map((entry): [number, number] => [Number(entry.evaluated), entry.score]), [all, search.bestScore]], all }
  }
  if (proposal.case === 'parameters') {
    const { search, candidates, chosen, episodes } = proposal.value
    const recorded = candidates.reduce((sum, entry) => sum + (entry.duplicateOf > 0 ? 0 : entry.returns.length), 0)
    const all = Math.max(Number(episodes), Number(search?.episodes ?? 0n), recorded)
    if (search !== undefined && search.evaluated > 0n) {
      const each = Number(search.episodes) / Number(search.evaluated)
      const improved = search.improvements.map((entry): [number, number] => [Math.round(Number(entry.evaluated) * each), entry.score])
      return { points: [...improved, [Number(search.episodes), search.bestScore]], all }
    }
    const score = candidates[chosen - 1]?.meanReturn
    return { points: score === undefined ? [] : [[all, score]], all }
  }
  if (proposal.case === 'code') {
    const score = proposal.value.candidates[proposal.value.chosen - 1]?.meanReturn
    return { points: score === undefined ? [] : [[Number(proposal.value.episodes), score]], all: Number(proposal.value.episodes) }
  }
  return { points: [], all: 0 }
}
