// Two benchmarks side by side: the success rates of their groups and the difference of these, with intervals.
import type { Benchmark, BenchmarkCase, BenchmarkGroup } from '../gen/dressage/v1/benchmark_service_pb'
import { SessionState } from '../gen/dressage/v1/session_pb'
import { toCsv } from './csv'
import { isOver } from './format'

/** A difference of two shares with its 95 % interval. */
export type Difference = { value: number; low: number; high: number }

export type Pair = { kind: string; value: string; first: BenchmarkGroup | undefined; second: BenchmarkGroup | undefined; difference: Difference | null }

/**
 * The difference of the second success rate from the first, by Newcombe's hybrid of the two Wilson intervals; null while one of them
 * has no ended case. It takes the cases of the two as independent.
 *
 * Source: R. G. Newcombe, Interval estimation for the difference between independent proportions (1998), method 10.
 */
export function differenceOf(first: BenchmarkGroup | undefined, second: BenchmarkGroup | undefined): Difference | null {
  const [p, q] = [rateOf(first), rateOf(second)]
  if (p === null || q === null) return null
  const value = q.rate - p.rate
  return { value, low: value - Math.hypot(q.rate - q.low, p.high - p.rate), high: value + Math.hypot(q.high - q.rate, p.rate - p.low) }
}

function rateOf(group: BenchmarkGroup | undefined): { rate: number; low: number; high: number } | null {
  if (group?.successRate === undefined || group.successLow === undefined || group.successHigh === undefined) return null
  return { rate: group.successRate, low: group.successLow, high: group.successHigh }
}

/** Groups of either benchmark by kind and value: all cases first, then as the first benchmark lists them. */
export function pairsOf(first: Benchmark, second: Benchmark): Pair[] {
  const key = (group: BenchmarkGroup) => JSON.stringify([group.kind, group.value])
  const [left, right] = [first, second].map((benchmark) => new Map(benchmark.groups.map((group) => [key(group), group])))
  const pairs = [...new Set([...left!.keys(), ...right!.keys()])].map((name): Pair => {
    const [kind, value] = JSON.parse(name) as [string, string]
    const [one, other] = [left!.get(name), right!.get(name)]
    return { kind, value, first: one, second: other, difference: differenceOf(one, other) }
  })
  return [...pairs.filter(({ kind }) => kind === 'all'), ...pairs.filter(({ kind }) => kind !== 'all')]
}

/** `onlyFirst` and `onlySecond` count the cases that only one of them passed. */
export type Matched = { cases: number; both: number; onlyFirst: number; onlySecond: number; neither: number }

/** Cases of the same environment, intent, method and run that have ended in both; one that occurs several times is matched in order. */
export function matchedOf(first: Benchmark, second: Benchmark): Matched {
  const key = (entry: BenchmarkCase) => JSON.stringify([entry.environment, entry.intent, ...(entry.method === '' ? [] : [entry.method, entry.run])])
  const waiting = new Map<string, BenchmarkCase[]>()
  for (const entry of first.cases) waiting.set(key(entry), [...(waiting.get(key(entry)) ?? []), entry])
  const counts: Matched = { cases: 0, both: 0, onlyFirst: 0, onlySecond: 0, neither: 0 }
  for (const entry of second.cases) {
    const partner = waiting.get(key(entry))?.shift()
    if (partner === undefined || !isOver(partner.state) || !isOver(entry.state)) continue
    const [one, other] = [partner, entry].map(({ state }) => state === SessionState.SUCCEEDED)
    counts.cases += 1
    counts[one ? (other ? 'both' : 'onlyFirst') : other ? 'onlySecond' : 'neither'] += 1
  }
  return counts
}

const RATES = ['completed', 'passed', 'success_rate', 'success_low', 'success_high', 'mean_score']
const round = (value: number | undefined): number | string => (value === undefined ? '' : Math.round(value * 1e6) / 1e6)

export function pairsCsv(first: Benchmark, second: Benchmark): string {
  const columns = (group: BenchmarkGroup | undefined) => [
    group?.completed ?? '',
    group?.passed ?? '',
    ...[group?.successRate, group?.successLow, group?.successHigh, group?.meanScore].map(round),
  ]
  return toCsv(
    ['kind', 'value', 'first', ...RATES.map((name) => `first_${name}`), 'second', ...RATES.map((name) => `second_${name}`), 'difference', 'difference_low', 'difference_high'],
    pairsOf(first, second).map(({ kind, value, difference, ...pair }) => [
      kind,
      value,
      first.name,
      ...columns(pair.first),
      second.name,
      ...columns(pair.second),
      ...[difference?.value, difference?.low, difference?.high].map(round),
    ]),
  )
}
