// What the forms of sessions and benchmarks hold, and the spec that it means.
import { type JsonObject, toJson } from '@bufbuild/protobuf'

import { METHODS } from '../../gen/arguments'
import type { SessionSpec } from '../../gen/dressage/v1/session_pb'
import { SessionSpecSchema } from '../../gen/dressage/v1/session_pb'
import { FIELDS, fits, fromJsonValue, pathOf, put, take, toJsonValue, type Value } from '../../lib/arguments'
import { decode, furtherLines, parseFurther } from './further'

/** A criterion to tick and edit; `key` stays while its text changes, `own` are the person's, which a new proposal keeps. */
export type Criterion = { key: number; title: string; description: string; category: string; on: boolean; own?: boolean }

export type Form = {
  intent: string
  environment: string
  method: string
  /** By the names of arguments; an empty text is not set. */
  values: Record<string, Value>
  criteria: Criterion[]
  /** Settings without a field of their own, one a line. */
  further: string
}

export const START: Form = { intent: '', environment: 'environments/HalfCheetah-v5', method: 'reward', values: {}, criteria: [], further: '' }

/** The spec of a form. Throws an Error if its settings cannot be read. */
export function specOf(form: Form): SessionSpec {
  const json = parseFurther(form.further)
  const given = METHODS.find((method) => Object.hasOwn(json, method))
  if (given !== undefined && given !== form.method) throw new Error(`The further settings are of the method ${given}, and ${form.method} is chosen`)
  if (given === undefined) json[form.method] = {}
  Object.assign(json, { intent: form.intent.trim(), environment: form.environment })
  for (const argument of FIELDS) {
    const value = form.values[argument.name]
    // A switch without another default is not set while it is off.
    if (value !== undefined && value !== '' && !(value === false && argument.unset === 'off') && fits(argument, form.method)) put(json, pathOf(argument).split('.'), toJsonValue(argument, value))
  }
  const criteria = form.criteria.filter((entry) => entry.on && entry.title.trim() !== '')
  if (form.method === 'reward' && criteria.length > 0) {
    json.criteria = criteria.map(({ title, description, category }) => ({ title: title.trim(), description, category, default_on: true }))
  }
  return decode(json, 'Settings')
}

/** The spec of a form, or what is wrong with it. */
export function readForm(form: Form): { spec?: SessionSpec; problem?: string } {
  try {
    return { spec: specOf(form) }
  } catch (error) {
    return { problem: error instanceof Error ? error.message : String(error) }
  }
}

export function formOf(spec: SessionSpec): Form {
  const json = toJson(SessionSpecSchema, spec, { useProtoFieldName: true }) as JsonObject
  const values: Record<string, Value> = {}
  for (const argument of FIELDS) {
    const value = take(json, pathOf(argument).split('.'))
    if (value !== undefined) values[argument.name] = fromJsonValue(argument, value)
  }
  for (const name of ['intent', 'environment', 'criteria']) delete json[name]
  return {
    intent: spec.intent,
    environment: spec.environment,
    method: spec.methodSpec.case ?? 'reward',
    values,
    criteria: spec.criteria.map(({ title, description, category }, index) => ({ key: index, title, description, category, on: true })),
    further: furtherLines(json),
  }
}
