// A spec as the `dressage run` command that starts the same session.
import type { SessionSpec } from '../gen/dressage/v1/session_pb'
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
  }
  option('seed', spec.seed)
  option('budget-dollars', spec.budget?.dollars)
  option('budget-tokens', spec.budget?.tokens)
  option('budget-steps', spec.budget?.envSteps)
  if (spec.approveBeforeEvaluation) words.push('--approve')
  return words.join(' ')
}
