// A spec as the `dressage run` command that starts the same session.
import type { SessionSpec } from '../gen/dressage/v1/session_pb'
import { FromParent } from '../gen/dressage/v1/session_pb'
import { environmentId, shellWord } from './format'

export function runCommand(spec: SessionSpec): string {
  const words = ['dressage', 'run', shellWord(spec.intent), '--env', shellWord(environmentId(spec.environment))]
  const option = (name: string, value: string | number | bigint | undefined) => {
    if (value !== undefined && value !== '' && Number(value) !== 0) words.push(`--${name}`, shellWord(String(value)))
  }
  const method = spec.methodSpec.case ?? 'reward'
  if (method !== 'reward') option('method', method)
  option('model', spec.model)
  option('iterations', spec.maxIterations)
  option('threshold', spec.passThreshold)
  if (spec.methodSpec.case === 'reward') {
    option('seeds', spec.methodSpec.value.seeds)
    option('steps', spec.methodSpec.value.stepsPerMember)
    option('patience', spec.methodSpec.value.patience)
    if (spec.methodSpec.value.fromParent === FromParent.NEVER) words.push('--from-parent', 'never')
    if (spec.methodSpec.value.fromParent === FromParent.ALWAYS) words.push('--from-parent', 'always')
  }
  option('seed', spec.seed)
  option('budget-dollars', spec.budget?.dollars)
  option('budget-tokens', spec.budget?.tokens)
  option('budget-steps', spec.budget?.envSteps)
  if (spec.criteria.length > 0) words.push('--criteria', 'criteria.json')
  if (spec.approveBeforeEvaluation) words.push('--approve')
  return words.join(' ')
}

/** The criteria of a spec as the file that `--criteria` reads. */
export function criteriaFile(spec: SessionSpec): string {
  return `${JSON.stringify({ criteria: spec.criteria.map(({ title, description, category }) => ({ title, description, category })) }, null, 2)}\n`
}
