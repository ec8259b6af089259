// What the page reads about each chosen item, and how it is scored.
import { useQueries } from '@tanstack/react-query'

import { sessions } from '../../api/clients'
import type { Cost, Iteration, Judgment, Session } from '../../gen/dressage/v1/session_pb'
import type { Item } from '../../lib/compare'
import { isOver, seconds } from '../../lib/format'
import type { SessionLive } from '../../live/model'
import { mean } from '../../live/model'
import { everyIteration } from '../session/data'

export type Source = { session: Session; iterations: Iteration[] }

/** Sessions and iterations of all items, each session once. */
export function useSources(items: Item[]): { sources: Map<string, Source>; errors: Map<string, Error>; loading: boolean } {
  const names = [...new Set(items.map((item) => `sessions/${item.session}`))]
  const answers = useQueries({
    queries: names.map((name) => ({
      queryKey: ['session', name, 'compare'],
      queryFn: async (): Promise<Source> => {
        const [session, iterations] = await Promise.all([sessions.getSession({ name }), everyIteration(name)])
        return { session, iterations }
      },
      refetchInterval: (query: { state: { data: Source | undefined } }) => (query.state.data !== undefined && isOver(query.state.data.session.state) ? (false as const) : 5_000),
    })),
  })
  const sources = new Map<string, Source>()
  const errors = new Map<string, Error>()
  answers.forEach((answer, index) => {
    const id = names[index]!.split('/')[1]!
    if (answer.data !== undefined) sources.set(id, answer.data)
    else if (answer.error !== null) errors.set(id, answer.error)
  })
  return { sources, errors, loading: answers.some((answer) => answer.isPending) }
}

/** The iteration whose proposal and training stand for an item: for a session its best one. */
export function iterationOf(item: Item, source: Source | undefined): Iteration | undefined {
  const number = item.iteration || Number(source?.session.bestIteration.split('/').pop() || 0) || (source?.session.currentIteration ?? 0)
  return source?.iterations.find((entry) => entry.number === number)
}

export function bestConfigOf(iteration: Iteration | undefined): string {
  return iteration?.proposal.case === 'reward' ? iteration.proposal.value.bestConfig : ''
}

export type Scored = { value: number; low: number; high: number; samples: number } | null

function scored(judgment: Judgment | undefined): Scored {
  if (judgment === undefined) return null
  const known = judgment.samples.length > 1
  return { value: judgment.score, low: known ? judgment.intervalLow : judgment.score, high: known ? judgment.intervalHigh : judgment.score, samples: judgment.samples.length }
}

const point = (value: number | undefined): Scored => (value === undefined ? null : { value, low: value, high: value, samples: 1 })

export type Facts = {
  judgment: Judgment | undefined
  score: Scored
  fresh: Scored
  environmentReturn: number | null
  steps: number
  seconds: number | null
  cost: Cost | undefined
}

export function factsOf(item: Item, source: Source, live: SessionLive | undefined): Facts {
  const { session } = source
  const iteration = iterationOf(item, source)
  const reward = iteration?.proposal.case === 'reward' ? iteration.proposal.value : undefined
  const last = reward?.curve.at(-1)?.return ?? null
  if (item.member !== '') {
    const at = live?.iterations.get(item.iteration)
    const member = at?.members.get(item.member)
    const judgment = [...(at?.judged ?? [])].filter(([subject]) => subject.endsWith(`/members/${item.member}`) && subject.includes('/train')).at(-1)?.[1].judgment
    const evaluation = member?.evaluations.at(-1)
    return {
      judgment,
      score: scored(judgment),
      fresh: null,
      environmentReturn: evaluation === undefined ? null : mean(evaluation.returns),
      steps: member?.steps ?? 0,
      seconds: null,
      cost: undefined,
    }
  }
  const whole = item.iteration === 0
  const [start, end] = whole ? [seconds(session.startTime), seconds(session.endTime)] : [seconds(iteration?.createTime), seconds(iteration?.endTime)]
  const judgment = whole ? (session.bestJudgment ?? iteration?.judgment) : iteration?.judgment
  const { report } = session
  const fresh = whole
    ? report !== undefined
      ? { value: report.mean, low: report.intervalLow, high: report.intervalHigh, samples: report.returns.length }
      : scored(session.confirmation)
    : (scored(iteration?.confirmation) ?? point(iteration?.confirmedScore))
  const steps = [...(live?.iterations.get(iteration?.number ?? 0)?.members.values() ?? [])].reduce((sum, member) => sum + member.steps, 0)
  return {
    judgment,
    score: scored(judgment) ?? point(whole ? session.bestScore : iteration?.score),
    fresh,
    environmentReturn: whole && session.returns !== undefined ? session.returns.mean : last,
    steps: whole ? Number(session.envSteps) : steps,
    seconds: start === null ? null : (end ?? Date.now() / 1000) - start,
    cost: whole ? session.cost : iteration?.cost,
  }
}
