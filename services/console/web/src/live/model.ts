// What a session's events add up to: phases, curves, evaluations, judgments, conversation, warnings.
import type { Event } from '../gen/dressage/v1/event_pb'
import type { Cost, Evaluation, Judgment, Phase } from '../gen/dressage/v1/session_pb'

export type Series = { x: number[]; y: number[] }
export type MemberCurves = {
  /** `default-s0` */
  id: string
  config: string
  seed: number
  steps: number
  targetSteps: number
  /** Episodes that had ended at the last point of `EPISODIC` metrics. */
  episodes: number
  metrics: Map<string, Series>
  evaluations: Evaluation[]
}
/** Means over the last episodes: they are repeated until another episode ends, and such a repetition is no point of a curve. */
const EPISODIC = new Set(['episode_return', 'environment_return', 'episode_length'])
export type IterationLive = {
  number: number
  phases: { phase: Phase; time: number }[]
  members: Map<string, MemberCurves>
  judged: Map<string, { step: number; judgment: Judgment }>
  search: Series
  candidates: { id: string; mean: number | null; failure: string }[]
  score: number | null
  confirmed: number | null
}
export type Reply = { iteration: number; time: number; role: string; model: string; summary: string; cost: Cost | undefined }
export type Notice = { iteration: number; time: number; reason: string; message: string }

export class SessionLive {
  readonly iterations = new Map<number, IterationLive>()
  readonly replies: Reply[] = []
  readonly warnings: Notice[] = []
  readonly events: Event[] = []
  activity: { iteration: number; text: string; stepsPerSecond: number; secondsLeft: number; candidatesPerSecond: number } | null = null
  sequence = 0

  iteration(number: number): IterationLive {
    let entry = this.iterations.get(number)
    if (entry === undefined) {
      entry = {
        number,
        phases: [],
        members: new Map(),
        judged: new Map(),
        search: { x: [], y: [] },
        candidates: [],
        score: null,
        confirmed: null,
      }
      this.iterations.set(number, entry)
    }
    return entry
  }

  /** Add an event; events that are known already change nothing. */
  add(event: Event): void {
    const sequence = Number(event.sequence)
    if (sequence <= this.sequence) return
    this.sequence = sequence
    const time = seconds(event)
    const { case: kind, value } = event.payload
    if (kind !== 'progress') this.events.push(event)
    if (event.iteration === 0 && kind !== 'agentReplied' && kind !== 'warning') return
    const at = this.iteration(event.iteration)
    switch (kind) {
      case 'phaseChanged':
        at.phases.push({ phase: value.phase, time })
        this.activity = null
        break
      case 'progress': {
        this.activity = {
          iteration: event.iteration,
          text: value.activity,
          stepsPerSecond: value.stepsPerSecond,
          secondsLeft: value.secondsLeft,
          candidatesPerSecond: value.candidatesPerSecond,
        }
        for (const member of value.members) {
          const curves = memberOf(at, member.name, member.config, Number(member.seed))
          curves.steps = Number(member.envSteps)
          curves.targetSteps = Number(member.targetEnvSteps)
          const ended = member.metrics.episodes ?? Number.NaN
          const last = curves.metrics.get('episode_return')?.x.at(-1) ?? -1
          const repeated = ended === curves.episodes && curves.steps > last // a second attempt of the trainer goes back
          curves.episodes = ended
          for (const [name, number] of Object.entries(member.metrics)) {
            if (!repeated || !EPISODIC.has(name)) push(curves.metrics, name, curves.steps, number)
          }
        }
        break
      }
      case 'evaluationFinished':
        if (value.evaluation !== undefined && inTraining(value.member)) {
          const curves = memberOf(at, value.member)
          const step = Number(value.evaluation.envStep)
          curves.evaluations = curves.evaluations.filter((evaluation) => evaluation.envStep !== value.evaluation!.envStep)
          curves.evaluations.push(value.evaluation)
          curves.evaluations.sort((a, b) => Number(a.envStep - b.envStep))
          insert(curves.metrics, 'evaluation/environment return', step, mean(value.evaluation.returns))
          insert(curves.metrics, 'evaluation/proposed return', step, mean(value.evaluation.proposedReturns))
          if (value.evaluation.speeds.length > 0) insert(curves.metrics, 'evaluation/speed, m⁄s', step, mean(value.evaluation.speeds))
        }
        break
      case 'judged':
        if (value.judgment !== undefined) {
          const step = Number(value.envStep)
          at.judged.set(value.subject, { step, judgment: value.judgment })
          if (value.subject.includes('/members/') && !value.subject.includes('/rollouts/') && inTraining(value.subject)) {
            const member = memberOf(at, value.subject)
            // Without a step it is the judgment of the last checkpoint.
            const last = Number(member.evaluations.at(-1)?.envStep ?? member.steps)
            insert(member.metrics, "judge's score", step || last, value.judgment.score)
          }
        }
        break
      case 'searchImproved':
        if (value.improvement !== undefined) {
          at.search.x.push(Number(value.improvement.evaluated))
          at.search.y.push(value.improvement.score)
        }
        break
      case 'candidateEvaluated':
        if (value.result !== undefined) {
          const { id, returns, failure } = value.result
          at.candidates.push({ id, mean: returns.length > 0 ? mean(returns) : null, failure: failure?.message ?? '' })
        }
        break
      case 'scored':
        if (value.confirmed) at.confirmed = value.score
        else at.score = value.score
        break
      case 'agentReplied':
        this.replies.push({
          iteration: event.iteration,
          time,
          role: value.role,
          model: value.model,
          summary: value.summary,
          cost: value.cost,
        })
        break
      case 'warning':
        this.warnings.push({ iteration: event.iteration, time, reason: value.reason, message: value.message })
        break
    }
  }

  /** Names of all metrics of an iteration, those of evaluations and judges first. */
  metricNames(iteration: number): string[] {
    const names = new Set<string>()
    for (const member of this.iterations.get(iteration)?.members.values() ?? []) {
      for (const name of member.metrics.keys()) names.add(name)
    }
    const rank = (name: string) => (name === "judge's score" ? 0 : name.startsWith('evaluation/') ? 1 : name.startsWith('term') ? 3 : 2)
    return [...names].sort((a, b) => rank(a) - rank(b) || a.localeCompare(b))
  }
}

function seconds(event: Event): number {
  return event.time === undefined ? 0 : Number(event.time.seconds) + event.time.nanos / 1e9
}

export function mean(values: readonly number[]): number {
  return values.length === 0 ? Number.NaN : values.reduce((sum, value) => sum + value, 0) / values.length
}

/** Whether a member belongs to the training: the confirmation on fresh seeds plays the same members again. */
function inTraining(member: string): boolean {
  return /\/assignments\/train[^/]*\/members\//.test(member)
}

function memberOf(at: IterationLive, name: string, config = '', seed = -1): MemberCurves {
  const id = name.split('/').pop() ?? name
  let curves = at.members.get(id)
  if (curves === undefined) {
    const [, parsedConfig = id, parsedSeed = '0'] = /^(.*)-s(\d+)$/.exec(id) ?? []
    curves = {
      id,
      config: config || parsedConfig,
      seed: seed >= 0 ? seed : Number(parsedSeed),
      steps: 0,
      targetSteps: 0,
      episodes: -1,
      metrics: new Map(),
      evaluations: [],
    }
    at.members.set(id, curves)
  }
  return curves
}

function seriesOf(metrics: Map<string, Series>, name: string): Series {
  let series = metrics.get(name)
  if (series === undefined) metrics.set(name, (series = { x: [], y: [] }))
  return series
}

/** Append a point; a trainer's second attempt repeats steps, and its values replace those of the first. */
function push(metrics: Map<string, Series>, name: string, x: number, y: number): void {
  const series = seriesOf(metrics, name)
  while (series.x.length > 0 && series.x[series.x.length - 1]! >= x) {
    series.x.pop()
    series.y.pop()
  }
  series.x.push(x)
  series.y.push(y)
}

/** Insert a point in order; evaluations of one member may finish in another order than their steps. */
function insert(metrics: Map<string, Series>, name: string, x: number, y: number): void {
  const series = seriesOf(metrics, name)
  let at = series.x.length
  while (at > 0 && series.x[at - 1]! >= x) at -= 1
  const known = series.x[at] === x
  series.x.splice(at, known ? 1 : 0, x)
  series.y.splice(at, known ? 1 : 0, y)
}
