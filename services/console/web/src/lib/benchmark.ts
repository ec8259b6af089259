// A benchmark's tables as CSV, with the columns of `dressage bench`, and its stages.
import type { Benchmark, BenchmarkCase, BenchmarkGroup } from '../gen/dressage/v1/benchmark_service_pb'
import type { Cost } from '../gen/dressage/v1/session_pb'
import { SessionState } from '../gen/dressage/v1/session_pb'
import { toCsv } from './csv'
import { environmentId, isOver, stateName } from './format'

const CASES = ['case', 'env_id', 'instruction', 'category', 'difficulty', 'stage', 'state', 'score', 'low', 'high', 'passed', 'iterations', 'iteration_scores', 'dollars', 'tokens', 'env_steps', 'session', 'reason', 'judged_by']
const GROUPS = ['kind', 'value', 'total', 'completed', 'passed', 'success_rate', 'success_low', 'success_high', 'mean_score', 'iterations_to_pass', 'dollars', 'env_steps']

const round = (value: number | undefined): number | string => (value === undefined ? '' : Math.round(value * 1e6) / 1e6)

function dollarsOf(cost: Cost | undefined): string {
  if (cost === undefined || cost.requests === 0n) return '0'
  return cost.dollars === undefined ? 'unknown' : cost.dollars.toFixed(4)
}

/** Whether the cases are of several methods and runs: an experiment. */
export function isMatrix(benchmark: Benchmark): boolean {
  return benchmark.cases.some((entry) => entry.method !== '')
}

export function casesCsv(benchmark: Benchmark): string {
  if (!isMatrix(benchmark)) return toCsv(CASES, benchmark.cases.map(caseRow))
  return toCsv([...CASES, 'method', 'run'], benchmark.cases.map((entry, index) => [...caseRow(entry, index), entry.method, entry.run]))
}

function caseRow(entry: BenchmarkCase, index: number): (string | number)[] {
  const scored = entry.score !== undefined
  return [
    index + 1,
    environmentId(entry.environment),
    entry.intent,
    entry.category,
    entry.difficulty,
    entry.stage || '',
    entry.state === SessionState.UNSPECIFIED ? '' : stateName(entry.state),
    round(entry.score),
    scored ? round(entry.intervalLow ?? 0) : '',
    scored ? round(entry.intervalHigh ?? 0) : '',
    entry.state === SessionState.UNSPECIFIED ? '' : Number(entry.state === SessionState.SUCCEEDED),
    entry.iterations,
    entry.iterationScores.map((value) => value.toFixed(4)).join(' '),
    dollarsOf(entry.cost),
    Number((entry.cost?.inputTokens ?? 0n) + (entry.cost?.outputTokens ?? 0n)),
    Number(entry.envSteps),
    entry.session,
    entry.reason,
    entry.judgedBy + (entry.withoutVideo === '' ? '' : ` (no video: ${entry.withoutVideo})`),
  ]
}

export function groupsCsv(benchmark: Benchmark): string {
  return toCsv(
    GROUPS,
    benchmark.groups.map((group) => [
      group.kind,
      group.value,
      group.total,
      group.completed,
      group.passed,
      ...[group.successRate, group.successLow, group.successHigh, group.meanScore, group.iterationsToPass].map(round),
      dollarsOf(group.cost),
      Number(group.envSteps),
    ]),
  )
}

export type Stage = { number: number; total: number; completed: number; running: number; passed: number; score: number | null }

/** The stages with their cases; `score` is the mean over the cases that ended in this and earlier stages, which the gate compares. */
export function stagesOf(benchmark: Benchmark): Stage[] {
  const numbers = [...new Set(benchmark.cases.map((entry) => entry.stage))].filter((number) => number > 0).sort((a, b) => a - b)
  return numbers.map((number) => {
    const cases = benchmark.cases.filter((entry) => entry.stage === number)
    const ended = benchmark.cases.filter((entry) => entry.stage <= number && isOver(entry.state))
    return {
      number,
      total: cases.length,
      completed: cases.filter((entry) => isOver(entry.state)).length,
      running: cases.filter((entry) => entry.session !== '' && !isOver(entry.state)).length,
      passed: cases.filter((entry) => entry.state === SessionState.SUCCEEDED).length,
      score: ended.length === 0 ? null : ended.reduce((sum, entry) => sum + (entry.score ?? 0), 0) / ended.length,
    }
  })
}

export function isDone(benchmark: Benchmark): boolean {
  return benchmark.endTime !== undefined || benchmark.completed === benchmark.cases.length
}

export function allGroup(benchmark: Benchmark): BenchmarkGroup | undefined {
  return benchmark.groups.find((group) => group.kind === 'all')
}
