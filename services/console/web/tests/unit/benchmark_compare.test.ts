import { create } from '@bufbuild/protobuf'
import { describe, expect, it } from 'vitest'

import { BenchmarkSchema } from '../../src/gen/dressage/v1/benchmark_service_pb'
import { SessionState } from '../../src/gen/dressage/v1/session_pb'
import { casesCsv } from '../../src/lib/benchmark'
import { differenceOf, matchedOf, pairsCsv, pairsOf } from '../../src/lib/benchmarkCompare'
import { fromCsv } from '../../src/lib/csv'

const group = (kind: string, value: string, passed: number, completed: number, low: number, high: number) => ({ kind, value, passed, completed, total: completed, successRate: passed / completed, successLow: low, successHigh: high })
const entry = (intent: string, state: SessionState) => ({ environment: 'environments/Hopper-v5', intent, state })
const { SUCCEEDED, EXHAUSTED, RUNNING } = SessionState

const first = create(BenchmarkSchema, {
  name: 'benchmarks/b-1',
  groups: [group('all', 'all', 48, 80, 0.4904, 0.7005), group('category', 'jump', 48, 80, 0.4904, 0.7005)],
  cases: [entry('hop', SUCCEEDED), entry('hop', EXHAUSTED), entry('jump', EXHAUSTED), entry('run', SUCCEEDED)],
})
const second = create(BenchmarkSchema, {
  name: 'benchmarks/b-2',
  groups: [group('all', 'all', 56, 70, 0.6919, 0.8769), group('category', '=run', 1, 1, 0.2065, 1)],
  cases: [entry('hop', SUCCEEDED), entry('hop', SUCCEEDED), entry('jump', EXHAUSTED), entry('run', RUNNING), entry('other', SUCCEEDED)],
})

describe('an experiment', () => {
  const cell = (method: string, run: number, state: SessionState) => ({ ...entry('hop', state), method, run })
  const [one, other] = [[cell('a', 0, SUCCEEDED), cell('b', 0, EXHAUSTED)], [cell('b', 0, SUCCEEDED), cell('a', 0, SUCCEEDED), cell('a', 1, SUCCEEDED)]].map((cases) => create(BenchmarkSchema, { cases }))

  it('is matched by method and run, and has them in its CSV', () => {
    expect(matchedOf(one!, other!)).toEqual({ cases: 2, both: 1, onlyFirst: 0, onlySecond: 1, neither: 0 })
    expect(fromCsv(casesCsv(other!)).map((row) => row.slice(-2))).toEqual([['method', 'run'], ['b', '0'], ['a', '0'], ['a', '1']])
    expect(fromCsv(casesCsv(first))[0]!.at(-1)).toBe('judged_by')
  })
})

describe('two benchmarks', () => {
  it('have the difference and the interval of the source', () => {
    // Newcombe (1998), table II, method 10, the case of 56/70 and 48/80.
    const difference = differenceOf(first.groups[0], second.groups[0])!
    expect(difference.value).toBeCloseTo(0.2, 6)
    expect(difference.low).toBeCloseTo(0.0524, 3)
    expect(difference.high).toBeCloseTo(0.3339, 3)
  })

  it('show groups that only one of them has, without a difference', () => {
    expect(pairsOf(first, second).map(({ value, difference }) => [value, difference !== null])).toEqual([['all', true], ['jump', false], ['=run', false]])
    expect(differenceOf(undefined, second.groups[0])).toBeNull()
  })

  it('match ended cases by environment and intent', () => {
    expect(matchedOf(first, second)).toEqual({ cases: 3, both: 1, onlyFirst: 0, onlySecond: 1, neither: 1 })
  })

  it('are saved as one table, whose texts are no formulas', () => {
    const [head, all, , run] = fromCsv(pairsCsv(first, second))
    const cell = (row: string[], name: string) => row[head!.indexOf(name)]
    expect([cell(all!, 'first'), cell(all!, 'second'), cell(all!, 'difference')]).toEqual(['benchmarks/b-1', 'benchmarks/b-2', '0.2'])
    expect(Number(cell(all!, 'difference_low'))).toBeCloseTo(0.0524, 3)
    expect([cell(run!, 'value'), cell(run!, 'first_completed'), cell(run!, 'difference')]).toEqual(["'=run", '', ''])
  })
})
