// Every reply of a model, with its tokens and cost, and the totals by role.
import { Badge, Box, Group, SegmentedControl, Stack, Table, Text } from '@mantine/core'
import { IconMessages } from '@tabler/icons-react'
import { useState } from 'react'

import { Empty, Panel, Plain } from '../../components/basics'
import type { Cost } from '../../gen/dressage/v1/session_pb'
import { clock, compact, dollars } from '../../lib/format'
import type { Reply } from '../../live/model'
import type { TabProps } from './tabs'
import { Transcripts, useTasks } from './Transcripts'

const MOST = 300

export function Conversation({ name, session, live, iteration }: TabProps) {
  const replies = live.session.replies
  const tasks = useTasks(name)
  const [view, setView] = useState('replies')
  if (replies.length === 0) return <Empty icon={<IconMessages size={22} />} title="No replies yet" />
  const roles = Object.entries(session.costByRole).sort(([a], [b]) => a.localeCompare(b))
  return (
    <Stack>
      {roles.length > 0 && (
        <Panel title="Cost by role" pad="sm">
          <Table.ScrollContainer minWidth={420}>
            <Table fz="sm" verticalSpacing={5}>
              <Table.Thead>
                <Table.Tr>
                  <Table.Th>Role</Table.Th>
                  <Table.Th ta="right">Calls</Table.Th>
                  <Table.Th ta="right">Tokens in</Table.Th>
                  <Table.Th ta="right">Tokens out</Table.Th>
                  <Table.Th ta="right">Cost</Table.Th>
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {roles.map(([role, cost]) => (
                  <CostRow key={role} name={role.replaceAll('_', ' ')} cost={cost} />
                ))}
                {session.cost !== undefined && <CostRow name="all" cost={session.cost} strong />}
              </Table.Tbody>
            </Table>
          </Table.ScrollContainer>
        </Panel>
      )}
      {(tasks.data?.length ?? 0) > 0 && (
        <Group>
          <SegmentedControl data={['replies', 'transcripts']} value={view} onChange={setView} aria-label="View" />
        </Group>
      )}
      {view === 'transcripts' ? <Transcripts tasks={tasks.data ?? []} iteration={iteration} /> : <Replies replies={replies} />}
    </Stack>
  )
}

function Replies({ replies }: { replies: Reply[] }) {
  return (
    <>
      {replies.length > MOST && <Text size="xs" c="dimmed">{`The last ${MOST} of ${replies.length} replies`}</Text>}
      {replies
        .slice(-MOST)
        .toReversed()
        .map((reply, index) => (
          <Box key={index} className="reply">
            <Group gap="xs" mb={2}>
              <Text size="sm" fw={600}>
                {reply.role.replaceAll('_', ' ')}
              </Text>
              {reply.iteration > 0 && (
                <Badge size="xs" variant="light" color="gray">{`iteration ${reply.iteration}`}</Badge>
              )}
              <Text size="xs" c="dimmed" className="numbers">
                {[
                  reply.model,
                  clock(reply.time),
                  reply.cost !== undefined && reply.cost.requests > 0n ? `${compact(reply.cost.inputTokens)} in, ${compact(reply.cost.outputTokens)} out, ${dollars(reply.cost)}` : '',
                ]
                  .filter(Boolean)
                  .join(' · ')}
              </Text>
            </Group>
            <Plain>{reply.summary}</Plain>
          </Box>
        ))}
    </>
  )
}

function CostRow({ name, cost, strong = false }: { name: string; cost: Cost; strong?: boolean }) {
  return (
    <Table.Tr fw={strong ? 600 : 400}>
      <Table.Td>{name}</Table.Td>
      <Table.Td ta="right" className="numbers">{Number(cost.requests)}</Table.Td>
      <Table.Td ta="right" className="numbers">{compact(cost.inputTokens)}</Table.Td>
      <Table.Td ta="right" className="numbers">{compact(cost.outputTokens)}</Table.Td>
      <Table.Td ta="right" className="numbers">{dollars(cost)}</Table.Td>
    </Table.Tr>
  )
}
