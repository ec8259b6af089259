// What the tabs of a session read, besides its events.
import { useQuery } from '@tanstack/react-query'

import { sessions } from '../../api/clients'
import type { Assignment, Iteration, Rollout } from '../../gen/dressage/v1/session_pb'
import { isOver, lastPart } from '../../lib/format'
import { formatProgram } from '../../lib/program'

export function useSession(name: string) {
  return useQuery({
    queryKey: ['session', name, 'resource'],
    queryFn: ({ signal }) => sessions.getSession({ name }, { signal }),
    refetchInterval: ({ state: { data } }) => {
      if (data !== undefined && isOver(data.state)) return false
      return data?.queue === undefined ? 5_000 : 2_000 // places change without an event
    },
  })
}

export async function everyIteration(parent: string): Promise<Iteration[]> {
  const all: Iteration[] = []
  let pageToken = ''
  do {
    const page = await sessions.listIterations({ parent, pageSize: 100, pageToken })
    all.push(...page.iterations)
    pageToken = page.nextPageToken
  } while (pageToken !== '')
  return all
}

export function useIterations(name: string) {
  return useQuery({ queryKey: ['session', name, 'iterations'], queryFn: () => everyIteration(name) })
}

export function useLineage(name: string) {
  return useQuery({ queryKey: ['session', name, 'lineage'], queryFn: ({ signal }) => sessions.getLineage({ name }, { signal }) })
}

/** Assignments of an iteration, whole: lists leave out candidates. */
export async function readAssignments(parent: string): Promise<Assignment[]> {
  const all: Assignment[] = []
  let pageToken = ''
  do {
    const page = await sessions.listAssignments({ parent, pageSize: 200, pageToken })
    all.push(...page.assignments)
    pageToken = page.nextPageToken
  } while (pageToken !== '')
  return Promise.all(all.map((entry) => (entry.kind === 'evaluate' ? sessions.getAssignment({ name: entry.name }) : entry)))
}

export function useAssignments(session: string, iteration: number) {
  return useQuery({
    queryKey: ['session', session, 'assignments', iteration],
    queryFn: () => readAssignments(`${session}/iterations/${iteration}`),
    enabled: iteration > 0,
  })
}

/** `fresh`: whether it was recorded on the fresh seeds of a confirmation. */
export type Recorded = { rollout: Rollout; owner: string; step: number; last: boolean; fresh: boolean }

/** All recorded rollouts of assignments, the last checkpoints first. */
export function rolloutsOf(assignments: Assignment[]): Recorded[] {
  const all: Recorded[] = []
  for (const assignment of assignments) {
    const fresh = lastPart(assignment.name).startsWith('confirm')
    for (const member of assignment.members) {
      const last = member.evaluations.at(-1)?.envStep ?? 0n
      for (const evaluation of member.evaluations) {
        for (const rollout of evaluation.rollouts) {
          all.push({ rollout, owner: member.name.split('/').pop() ?? '', step: Number(evaluation.envStep), last: evaluation.envStep === last, fresh })
        }
      }
    }
    for (const candidate of assignment.candidates) {
      for (const rollout of candidate.rollouts) all.push({ rollout, owner: candidate.id, step: 0, last: true, fresh })
    }
  }
  return all.sort((a, b) => b.step - a.step || a.owner.localeCompare(b.owner))
}

/** The recorded rollout that a video shows. */
export function filmOf(video: string, all: Recorded[]): Rollout | undefined {
  return all.find(({ rollout }) => rollout.video === video)?.rollout
}

/** The artifact of the recording that a video shows, with states to draw; empty: it is not known. */
export function recordingOf(video: string, all: Recorded[]): string {
  const artifact = filmOf(video, all)?.artifact ?? ''
  return artifact.endsWith('.npz') ? artifact : ''
}

/** The proposal as text, and in which language. */
export function sourceOf(iteration: Iteration | undefined): { text: string; language: 'python' | 'json' | 'text'; title: string } | null {
  const { case: kind, value } = iteration?.proposal ?? { case: undefined, value: undefined }
  if (kind === 'reward' && value.source !== '') return { text: value.source, language: 'python', title: 'reward.py' }
  if (kind === 'code' && value.source !== '') return { text: value.source, language: 'python', title: 'policy.py' }
  if (kind === 'program' && value.program !== '') return { text: formatProgram(value.program), language: 'text', title: 'program' }
  if (kind === 'parameters' && value.values.length > 0) {
    return { text: JSON.stringify(value.values.map((entry) => Number(entry.toPrecision(6))), null, 1), language: 'json', title: 'parameters' }
  }
  return null
}
