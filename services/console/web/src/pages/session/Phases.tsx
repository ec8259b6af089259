// Where the session is now: the phases of its iteration, and what the trainer does.
import { Box, Group, Progress, Text } from '@mantine/core'
import { IconCheck } from '@tabler/icons-react'

import type { Session } from '../../gen/dressage/v1/session_pb'
import { Phase } from '../../gen/dressage/v1/session_pb'
import { compact, duration, isOver, phaseName } from '../../lib/format'
import type { Live } from '../../live/useSession'

const ORDER = [Phase.PROPOSE, Phase.CHECK, Phase.APPROVE, Phase.EVALUATE, Phase.JUDGE, Phase.CONFIRM, Phase.DELIVER]

export function Phases({ session, live }: { session: Session; live: Live }) {
  if (isOver(session.state) || session.currentIteration === 0) return null
  const at = live.session.iterations.get(session.currentIteration)
  const seen = new Set(at?.phases.map((entry) => entry.phase))
  const now = at?.phases.at(-1)?.phase ?? session.phase
  const shown = ORDER.filter((phase) => seen.has(phase) || phase === now || (phase !== Phase.APPROVE && phase !== Phase.CONFIRM) || (phase === Phase.APPROVE && session.spec?.approveBeforeEvaluation))
  const activity = live.session.activity
  const members = [...(at?.members.values() ?? [])]
  const done = members.reduce((sum, member) => sum + member.steps, 0)
  const all = members.reduce((sum, member) => sum + member.targetSteps, 0)
  return (
    <Box>
      <Group gap={6} role="list" aria-label={`Phases of iteration ${session.currentIteration}`}>
        <Text size="xs" c="dimmed" className="numbers">{`Iteration ${session.currentIteration} of ${session.spec?.maxIterations}`}</Text>
        {shown.map((phase) => {
          const current = phase === now
          const over = !current && seen.has(phase)
          return (
            <Group key={phase} gap={4} role="listitem" aria-current={current ? 'step' : undefined} className={`phase ${current ? 'current' : over ? 'over' : ''}`}>
              {over && <IconCheck size={12} aria-hidden />}
              <Text size="xs" fw={current ? 600 : 400}>
                {phaseName(phase)}
              </Text>
            </Group>
          )
        })}
        {activity !== null && activity.text !== '' && (
          <Text size="xs" c="dimmed" className="numbers">
            {[
              activity.text,
              activity.stepsPerSecond > 0 ? `${compact(Math.round(activity.stepsPerSecond))} steps/s` : '',
              activity.candidatesPerSecond > 0 ? `${compact(activity.candidatesPerSecond)} candidates/s` : '',
              activity.secondsLeft > 0 ? `about ${duration(activity.secondsLeft)} left` : '',
            ]
              .filter(Boolean)
              .join(', ')}
          </Text>
        )}
      </Group>
      {now === Phase.EVALUATE && all > 0 && <Progress value={(100 * done) / all} size="sm" mt={8} aria-label={`Training: ${Math.round((100 * done) / all)} percent`} />}
    </Box>
  )
}
