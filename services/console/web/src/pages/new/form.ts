// What the forms of sessions and benchmarks hold, and the spec that it means.
import { create } from '@bufbuild/protobuf'

import type { SessionSpec } from '../../gen/dressage/v1/session_pb'
import { CodeSpecSchema, FromParent, ParameterSpecSchema, ProgramSpecSchema, RewardSpecSchema, SessionSpecSchema } from '../../gen/dressage/v1/session_pb'

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
}

function methodSpec(form: Form): SessionSpec['methodSpec'] {
  if (form.method === 'parameters') return { case: 'parameters', value: create(ParameterSpecSchema) }
  if (form.method === 'code') return { case: 'code', value: create(CodeSpecSchema) }
  if (form.method === 'program') return { case: 'program', value: create(ProgramSpecSchema) }
  const value = create(RewardSpecSchema, {
    seeds: Number(form.seeds || 0),
    stepsPerMember: BigInt(Math.round(Number(form.steps || 0))),
    patience: Number(form.patience || 0),
    fromParent: FROM_PARENT[form.fromParent] ?? FromParent.UNSPECIFIED,
  })
  return { case: 'reward', value }
}

export function specOf(form: Form): SessionSpec {
  const spec = create(SessionSpecSchema, {
    intent: form.intent.trim(),
    environment: form.environment,
    model: form.model.trim(),
    maxIterations: Number(form.iterations || 0),
    passThreshold: Number(form.threshold || 0),
    approveBeforeEvaluation: form.approve,
    criteria: form.method === 'reward' ? form.criteria.filter((entry) => entry.on && entry.title.trim() !== '').map(({ title, description, category }) => ({ title: title.trim(), description, category, defaultOn: true })) : [],
  })
  spec.methodSpec = methodSpec(form)
  if (form.dollars !== '' || form.minutes !== '') {
    spec.budget = {
      $typeName: 'dressage.v1.Budget',
      envSteps: 0n,
      tokens: 0n,
      ...(form.dollars === '' ? {} : { dollars: Number(form.dollars) }),
      ...(form.minutes === ''
        ? {}
        : { wallTime: { $typeName: 'google.protobuf.Duration', seconds: BigInt(Math.round(Number(form.minutes) * 60)), nanos: 0 } }),
    }
  }
  return spec
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
  }
}

