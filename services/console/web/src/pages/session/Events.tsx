// The session's events as they are recorded, without the progress of trainings.
import { Badge, Group, ScrollArea, Stack, Text } from '@mantine/core'

import { Panel, Plain } from '../../components/basics'
import type { Event } from '../../gen/dressage/v1/event_pb'
import { AssignmentState, RunState } from '../../gen/dressage/v1/session_pb'
import { clock, lastPart, phaseName, scoredText, seconds, short, stateName } from '../../lib/format'
import type { TabProps } from './tabs'

const MOST = 500

function describe({ payload: { case: kind, value } }: Event, method: string): [string, string] {
  switch (kind) {
    case 'stateChanged':
      return ['state', [stateName(value.state), value.reason].filter(Boolean).join(': ')]
    case 'phaseChanged':
      return ['phase', phaseName(value.phase)]
    case 'agentReplied':
      return [value.role.replaceAll('_', ' '), value.summary]
    case 'checkFinished':
      return ['check', `${value.subject}: ${value.ok ? 'passed' : value.failures.map((failure) => `${failure.rule}: ${failure.message}`).join('; ')}`]
    case 'runChanged':
      return ['run', `${lastPart(value.run)} ${RunState[value.state]?.toLowerCase() ?? ''}${value.attempt > 1 ? `, attempt ${value.attempt}` : ''}${value.failure === undefined ? '' : `: ${value.failure.message}`}`]
    case 'assignmentChanged':
      return ['assignment', `${lastPart(value.assignment)} ${AssignmentState[value.state]?.toLowerCase() ?? ''}${value.failure === undefined ? '' : `: ${value.failure.message}`}`]
    case 'evaluationFinished':
      return ['evaluation', `${lastPart(value.member)} at ${value.evaluation?.envStep} steps: returns ${value.evaluation?.returns.map((entry) => short(entry)).join(', ')}`]
    case 'judged':
      return ['judged', `${value.subject.split('/').slice(2).join('/') || 'session'}: ${value.judgment?.score.toFixed(2)}`]
    case 'warning':
      return ['warning', `${value.reason}: ${value.message}`]
    case 'noteAdded':
      return ['your direction', [value.note, ...value.set].filter(Boolean).join('; ')]
    case 'artifactWritten':
      return [value.kind, value.artifact.split('/').slice(2).join('/')]
    case 'screened':
      return ['screening', `${value.outcome}, ${value.screening?.trajectories} trajectories`]
    case 'approvalRequested':
      return ['approval', `requested for iteration ${lastPart(value.iteration)}`]
    case 'approvalGranted':
      return ['approval', `granted for iteration ${lastPart(value.iteration)}. ${value.note}`]
    case 'candidateEvaluated':
      return ['candidate', `${value.result?.id}: ${value.result?.failure?.message ?? value.result?.returns.map((entry) => short(entry)).join(', ').slice(0, 200)}`]
    case 'searchImproved':
      return ['improvement', `${short(value.improvement?.score ?? 0)} after ${value.improvement?.evaluated} candidates`]
    case 'scored':
      return ['score', scoredText(value, method)]
    case 'programsCollected':
      return ['programs', `${value.kept} of ${value.requested} replies kept, ${value.distinct} different`]
    case 'trainingStopped':
      return ['early stop', `every seed passes at ${value.earlyStop?.envStep} steps`]
    default:
      return [kind ?? 'event', '']
  }
}

export function Events({ live, session }: TabProps) {
  const shown = live.session.events.slice(-MOST).toReversed()
  return (
    <Panel title="Events" right={<Text size="xs" c="dimmed" className="numbers">{`newest first, ${Math.min(MOST, live.session.events.length)} of ${live.session.events.length}`}</Text>}>
      <ScrollArea.Autosize mah={640} viewportProps={{ tabIndex: 0, role: 'log', 'aria-label': 'Events' }}>
        <Stack gap={4}>
          {shown.map((event) => {
            const [word, text] = describe(event, session.method)
            const time = seconds(event.time)
            return (
              <Group key={String(event.sequence)} gap="sm" wrap="nowrap" align="flex-start">
                <Text size="xs" c="dimmed" className="numbers" miw={62}>
                  {time === null ? '' : clock(time)}
                </Text>
                <Badge size="sm" variant="light" color={word === 'warning' ? 'yellow' : 'gray'} miw={{ base: 72, sm: 104 }} tt="none">
                  {word}
                </Badge>
                <Plain>{text}</Plain>
              </Group>
            )
          })}
        </Stack>
      </ScrollArea.Autosize>
    </Panel>
  )
}
