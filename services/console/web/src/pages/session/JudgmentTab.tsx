// Judgments with their evidence: of the iteration, of each member, and on fresh seeds.
import { Badge, Box, Group, Progress, SimpleGrid, Stack, Table, Text } from '@mantine/core'
import { IconGavel } from '@tabler/icons-react'
import type { ReactNode } from 'react'

import { Empty, Fact, Panel, Plain } from '../../components/basics'
import type { Judgment } from '../../gen/dressage/v1/session_pb'
import { JudgeKind } from '../../gen/dressage/v1/session_pb'
import { short } from '../../lib/format'
import { useAssignments, useIterations } from './data'
import type { TabProps } from './tabs'

const KINDS: Record<JudgeKind, string> = {
  [JudgeKind.UNSPECIFIED]: 'unknown',
  [JudgeKind.CODE]: 'code',
  [JudgeKind.VIDEO]: 'video',
  [JudgeKind.HUMAN]: 'people',
}

export function Criteria({ judgment }: { judgment: Judgment }) {
  return (
    <Stack gap={6}>
      {judgment.criteria.map((criterion) => (
        <Group key={criterion.name} gap="sm" wrap="nowrap">
          <Text size="sm" w={130} className="one-line" title={criterion.name}>
            {criterion.name}
          </Text>
          <Progress value={criterion.score * 100} flex={1} size="md" color={criterion.score >= 0.7 ? 'teal' : criterion.score >= 0.4 ? 'yellow' : 'red'} aria-label={`${criterion.name}: ${criterion.score.toFixed(2)}`} />
          <Text size="sm" w={40} ta="right" className="numbers">
            {criterion.score.toFixed(2)}
          </Text>
        </Group>
      ))}
    </Stack>
  )
}

function JudgmentPanel({ title, judgment }: { title: ReactNode; judgment: Judgment }) {
  return (
    <Panel
      title={title}
      right={
        <Badge variant="light" color={judgment.passed ? 'teal' : 'yellow'} className="numbers">
          {judgment.passed ? 'passed' : 'not passed'}
        </Badge>
      }
    >
      <Stack gap="sm">
        <Group gap="xl">
          <Fact label="Score">{judgment.score.toFixed(2)}</Fact>
          {judgment.samples.length > 1 && (
            <Fact label="95 % interval" hint="Bootstrap over the samples">{`${judgment.intervalLow.toFixed(2)} to ${judgment.intervalHigh.toFixed(2)}`}</Fact>
          )}
          {judgment.samples.length > 1 && <Fact label="Samples">{judgment.samples.map((value) => value.toFixed(2)).join(', ')}</Fact>}
          <Fact label="Judged by">{judgment.judgedBy || '–'}</Fact>
          {judgment.rollouts > 0 && <Fact label="Rollouts">{judgment.rollouts}</Fact>}
          {judgment.unjudgedRollouts > 0 && <Fact label="Not judged">{judgment.unjudgedRollouts}</Fact>}
        </Group>
        <Criteria judgment={judgment} />
        {judgment.diagnosis !== '' && <Plain>{judgment.diagnosis}</Plain>}
        {judgment.failureTags.length > 0 && (
          <Group gap={6}>
            {judgment.failureTags.map((tag) => (
              <Badge key={tag} variant="outline" color="red" size="sm" tt="none">
                {tag}
              </Badge>
            ))}
          </Group>
        )}
        {judgment.withoutVideo !== '' && (
          <Text size="xs" c="dimmed" className="plain">{`Without video: ${judgment.withoutVideo}`}</Text>
        )}
        {judgment.verdicts.map((verdict, index) => (
          <Box key={index}>
            <Group gap="xs" mb={4}>
              <Text size="sm" fw={600}>{`Verdict by ${KINDS[verdict.kind]}`}</Text>
              <Text size="xs" c="dimmed" className="numbers">{`${verdict.score.toFixed(2)}, ${verdict.votes} ${verdict.votes === 1 ? 'vote' : 'votes'}, spread ${verdict.spread.toFixed(2)}`}</Text>
            </Group>
            {verdict.comment !== '' && <Plain>{verdict.comment}</Plain>}
            {Object.keys(verdict.evidence).length > 0 && (
              <Table fz="xs" verticalSpacing={3} withRowBorders={false}>
                <Table.Tbody>
                  {Object.entries(verdict.evidence)
                    .sort(([a], [b]) => a.localeCompare(b))
                    .map(([key, value]) => (
                      <Table.Tr key={key}>
                        <Table.Td c="dimmed" className="plain">
                          {key.replaceAll('_', ' ')}
                        </Table.Td>
                        <Table.Td ta="right" className="numbers">
                          {short(value, 4)}
                        </Table.Td>
                      </Table.Tr>
                    ))}
                </Table.Tbody>
              </Table>
            )}
          </Box>
        ))}
      </Stack>
    </Panel>
  )
}

export function JudgmentTab({ name, session, iteration }: TabProps) {
  const iterations = useIterations(name)
  const assignments = useAssignments(name, iteration)
  const entry = iterations.data?.find((candidate) => candidate.number === iteration)
  const members = (assignments.data ?? []).flatMap((assignment) => assignment.members).filter((member) => member.judgment !== undefined)
  if (entry?.judgment === undefined && members.length === 0) {
    return (
      <Empty icon={<IconGavel size={22} />} title="Not judged yet">
        {session.method === 'reward' ? 'Judges score the recorded episodes when training has ended.' : 'This method scores by the mean return; it has no judge.'}
      </Empty>
    )
  }
  return (
    <Stack>
      <SimpleGrid cols={{ base: 1, md: entry?.confirmation === undefined ? 1 : 2 }}>
        {entry?.judgment !== undefined && <JudgmentPanel title={`Iteration ${iteration}`} judgment={entry.judgment} />}
        {entry?.confirmation !== undefined && <JudgmentPanel title="On fresh seeds" judgment={entry.confirmation} />}
      </SimpleGrid>
      <SimpleGrid cols={{ base: 1, md: 2 }}>
        {members.map((member) => (
          <JudgmentPanel key={member.name} title={member.name.split('/').slice(-3).filter((part) => part !== 'members').join(' ')} judgment={member.judgment!} />
        ))}
      </SimpleGrid>
      {session.labelAgreement !== undefined && session.labelAgreement.rollouts > 0 && (
        <Text size="sm" c="dimmed" className="numbers">
          {`${session.labelAgreement.rollouts} rollouts labelled by people; rank correlation with the judges ${session.labelAgreement.spearman?.toFixed(2) ?? 'unknown'}, kappa ${session.labelAgreement.kappa?.toFixed(2) ?? 'unknown'}.`}
        </Text>
      )}
    </Stack>
  )
}
