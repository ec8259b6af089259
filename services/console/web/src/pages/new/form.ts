// What the forms of sessions and benchmarks hold, and the spec that it means.
import { clone, create } from '@bufbuild/protobuf'
import { DurationSchema } from '@bufbuild/protobuf/wkt'

import type { SessionSpec } from '../../gen/dressage/v1/session_pb'
import { BudgetSchema, CodeSpecSchema, FromParent, ParameterSpecSchema, ProgramSpecSchema, RewardSpecSchema, SessionSpecSchema } from '../../gen/dressage/v1/session_pb'
import { furtherLines, parseFurther } from './further'

/** A criterion to tick and edit; `key` stays while its text changes, `own` are the person's, which a new proposal keeps. */
export type Criterion = { key: number; title: string; description: string; category: string; on: boolean; own?: boolean }

export const FROM_PARENT: Record<string, FromParent> = { auto: FromParent.UNSPECIFIED, never: FromParent.NEVER, always: FromParent.ALWAYS }

export type Form = {
  intent: string
  environment: string
  method: string
  model: string
  iterations: number | ''
  threshold: number | ''
  seeds: number | ''
  steps: number | ''
  dollars: number | ''
  minutes: number | ''
  approve: boolean
  patience: number | ''
  fromParent: string
  criteria: Criterion[]
  /** Settings without a field of their own, one a line. */
  further: string
}

export const START: Form = {
  intent: '',
  environment: 'environments/HalfCheetah-v5',
  method: 'reward',
  model: '',
  iterations: '',
  threshold: '',
  seeds: '',
  steps: '',
  dollars: '',
  minutes: '',
  approve: false,
  patience: '',
  fromParent: 'auto',
  criteria: [],
  further: '',
}

function setMethod(spec: SessionSpec, form: Form): void {
  const given = spec.methodSpec.case
  if (given !== undefined && given !== form.method) throw new Error(`The further settings are of the method ${given}, and ${form.method} is chosen`)
  if (spec.methodSpec.case === undefined) {
    if (form.method === 'parameters') spec.methodSpec = { case: 'parameters', value: create(ParameterSpecSchema) }
    else if (form.method === 'code') spec.methodSpec = { case: 'code', value: create(CodeSpecSchema) }
    else if (form.method === 'program') spec.methodSpec = { case: 'program', value: create(ProgramSpecSchema) }
    else spec.methodSpec = { case: 'reward', value: create(RewardSpecSchema) }
  }
  if (spec.methodSpec.case !== 'reward') return
  const reward = spec.methodSpec.value
  if (form.seeds) reward.seeds = form.seeds
  if (form.steps) reward.stepsPerMember = BigInt(Math.round(form.steps))
  if (form.patience) reward.patience = form.patience
  if (form.fromParent !== 'auto') reward.fromParent = FROM_PARENT[form.fromParent] ?? FromParent.UNSPECIFIED
}

/** The spec of a form. Throws an Error if its further settings cannot be read. */
export function specOf(form: Form): SessionSpec {
  const spec = parseFurther(form.further)
  spec.intent = form.intent.trim()
  spec.environment = form.environment
  if (form.model.trim() !== '') spec.model = form.model.trim()
  if (form.iterations) spec.maxIterations = form.iterations
  if (form.threshold) spec.passThreshold = form.threshold
  if (form.approve) spec.approveBeforeEvaluation = true
  const criteria = form.criteria.filter((entry) => entry.on && entry.title.trim() !== '')
  if (form.method === 'reward' && criteria.length > 0) {
    spec.criteria = create(SessionSpecSchema, {
      criteria: criteria.map(({ title, description, category }) => ({ title: title.trim(), description, category, defaultOn: true })),
    }).criteria
  }
  setMethod(spec, form)
  if (form.dollars !== '' || form.minutes !== '') {
    spec.budget ??= create(BudgetSchema)
    if (form.dollars !== '') spec.budget.dollars = Number(form.dollars)
    if (form.minutes !== '') spec.budget.wallTime = create(DurationSchema, { seconds: BigInt(Math.round(Number(form.minutes) * 60)) })
  }
  return spec
}

/** The spec of a form, or what is wrong with it. */
export function readForm(form: Form): { spec?: SessionSpec; problem?: string } {
  try {
    return { spec: specOf(form) }
  } catch (error) {
    return { problem: error instanceof Error ? error.message : String(error) }
  }
}

/** What of a spec has no field in the form. */
function rest(spec: SessionSpec): SessionSpec {
  const left = clone(SessionSpecSchema, spec)
  Object.assign(left, { intent: '', environment: '', model: '', maxIterations: 0, passThreshold: 0, approveBeforeEvaluation: false, criteria: [] })
  if (left.budget !== undefined) Object.assign(left.budget, { dollars: undefined, wallTime: undefined })
  if (left.methodSpec.case === 'reward') Object.assign(left.methodSpec.value, { seeds: 0, stepsPerMember: 0n, patience: 0, fromParent: FromParent.UNSPECIFIED })
  return left
}

export function formOf(spec: SessionSpec): Form {
  const reward = spec.methodSpec.case === 'reward' ? spec.methodSpec.value : undefined
  return {
    intent: spec.intent,
    environment: spec.environment,
    method: spec.methodSpec.case ?? 'reward',
    model: spec.model,
    iterations: spec.maxIterations || '',
    threshold: spec.passThreshold || '',
    seeds: reward?.seeds || '',
    steps: Number(reward?.stepsPerMember ?? 0n) || '',
    dollars: spec.budget?.dollars ?? '',
    minutes: spec.budget?.wallTime === undefined ? '' : Number(spec.budget.wallTime.seconds) / 60,
    approve: spec.approveBeforeEvaluation,
    patience: reward?.patience || '',
    fromParent: Object.keys(FROM_PARENT).find((word) => FROM_PARENT[word] === reward?.fromParent) ?? 'auto',
    criteria: spec.criteria.map(({ title, description, category }, index) => ({ key: index, title, description, category, on: true })),
    further: furtherLines(rest(spec)),
  }
}
