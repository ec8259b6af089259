// The chosen items in a table: which part of a session, its score with its interval, and what it took.
import { ActionIcon, Anchor, Box, Group, Select, Table, Text, Tooltip } from '@mantine/core'
import { IconX } from '@tabler/icons-react'
import { Link } from '@tanstack/react-router'

import { StateBadge } from '../../components/basics'
import type { Item } from '../../lib/compare'
import { itemKey } from '../../lib/compare'
import { compact, dollars, duration, environmentId, scoreText, short } from '../../lib/format'
import type { SessionLive } from '../../live/model'
import type { Facts, Scored, Source } from './facts'

export type Entry = { item: Item; label: string; color: string; source: Source | undefined; error: Error | undefined; facts: Facts | null; live: SessionLive | undefined }

type Props = { entries: Entry[]; onPart: (item: Item, next: Item) => void; onRemove: (item: Item) => void }

export function Scores({ entries, onPart, onRemove }: Props) {
  const scale = (unit: (facts: Facts) => Scored, of: Entry): [number, number] => {
    const judged = of.source?.session.method === 'reward'
    if (judged) return [0, 1]
    // Returns of different environments share no unit.
    const environment = of.source?.session.spec?.environment
    const all = entries.filter(({ source }) => source?.session.method !== 'reward' && source?.session.spec?.environment === environment).flatMap((entry) => (entry.facts === null ? [] : [unit(entry.facts)]))
    const bounds = all.flatMap((value) => (value === null ? [] : [value.low, value.high]))
    return [Math.min(0, ...bounds), Math.max(...bounds, 1e-9)]
  }
  return (
    <Table.ScrollContainer minWidth={900}>
      <Table fz="sm" verticalSpacing={8}>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>Compared</Table.Th>
            <Table.Th>Part</Table.Th>
            <Table.Th>Score</Table.Th>
            <Table.Th>Fresh seeds</Table.Th>
            <Table.Th ta="right">Return</Table.Th>
            <Table.Th ta="right">Steps</Table.Th>
            <Table.Th ta="right">Time</Table.Th>
            <Table.Th ta="right">Cost</Table.Th>
            <Table.Th aria-label="Remove" />
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {entries.map((entry) => {
            const { item, source, facts, color } = entry
            const search = item.iteration > 0 ? { iteration: item.iteration } : {}
            return (
              <Table.Tr key={itemKey(item)}>
                <Table.Td maw={280}>
                  <Group gap={8} wrap="nowrap" align="flex-start">
                    <Box w={14} h={4} mt={8} bg={color} className="whole" />
                    <Box miw={0}>
                      <Anchor component={Link} to="/sessions/$id" params={{ id: item.session } as never} search={search as never} size="sm" fw={550} className="one-line" display="block">
                        {source?.session.spec?.intent.slice(0, 200) || item.session}
                      </Anchor>
                      <Text size="xs" c={entry.error === undefined ? 'dimmed' : 'red'} className="one-line">
                        {entry.error === undefined
                          ? `${item.session} · ${environmentId(source?.session.spec?.environment ?? '')} · ${source?.session.method ?? ''}`
                          : 'There is no such session.'}
                      </Text>
                    </Box>
                  </Group>
                </Table.Td>
                <Table.Td miw={150}>
                  <Part entry={entry} onPart={onPart} />
                </Table.Td>
                <Table.Td>
                  <Interval value={facts?.score ?? null} range={scale((other) => other.score, entry)} color={color} method={source?.session.method ?? ''} />
                </Table.Td>
                <Table.Td>
                  <Interval value={facts?.fresh ?? null} range={scale((other) => other.fresh, entry)} color={color} method={source?.session.method ?? ''} />
                </Table.Td>
                <Table.Td ta="right" className="numbers">
                  {facts?.environmentReturn == null ? '–' : short(facts.environmentReturn)}
                </Table.Td>
                <Table.Td ta="right" className="numbers">
                  {facts === null || facts.steps === 0 ? '–' : compact(facts.steps)}
                </Table.Td>
                <Table.Td ta="right" className="numbers">
                  {facts?.seconds == null ? '–' : duration(facts.seconds)}
                </Table.Td>
                <Table.Td ta="right" className="numbers">
                  {dollars(facts?.cost)}
                </Table.Td>
                <Table.Td>
                  <Group gap={4} wrap="nowrap" justify="flex-end">
                    {item.iteration === 0 && source !== undefined && <StateBadge state={source.session.state} />}
                    <Tooltip label="remove">
                      <ActionIcon variant="subtle" color="gray" onClick={() => onRemove(item)} aria-label={`Remove ${entry.label}`}>
                        <IconX size={16} />
                      </ActionIcon>
                    </Tooltip>
                  </Group>
                </Table.Td>
              </Table.Tr>
            )
          })}
        </Table.Tbody>
      </Table>
    </Table.ScrollContainer>
  )
}

function Part({ entry, onPart }: { entry: Entry; onPart: Props['onPart'] }) {
  const { item, source, live } = entry
  const whole = { value: '0', label: 'best of the session' }
  const parts = (source?.iterations ?? []).flatMap((iteration) => [
    { value: String(iteration.number), label: `iteration ${iteration.number}` },
    ...[...(live?.iterations.get(iteration.number)?.members.keys() ?? [])].map((member) => ({ value: `${iteration.number}/${member}`, label: `${iteration.number}, ${member}` })),
  ])
  const value = item.member === '' ? String(item.iteration) : `${item.iteration}/${item.member}`
  const known = parts.some((part) => part.value === value) || value === '0'
  return (
    <Select
      aria-label={`Part of ${item.session}`}
      size="xs"
      allowDeselect={false}
      data={[whole, ...(known ? [] : [{ value, label: value.replace('/', ', ') }]), ...parts]}
      value={value}
      onChange={(next) => {
        const [iteration = '0', member = ''] = (next ?? '0').split('/')
        onPart(item, { session: item.session, iteration: Number(iteration), member })
      }}
    />
  )
}

/** A score with its 95 % interval, drawn on the scale that all items of its unit share. */
function Interval({ value, range: [least, most], color, method }: { value: Scored; range: [number, number]; color: string; method: string }) {
  if (value === null) return <Text size="sm" c="dimmed">–</Text>
  const place = (x: number) => `${Math.max(0, Math.min(100, ((x - least) / (most - least || 1)) * 100))}%`
  const known = value.high > value.low || value.samples > 1
  return (
    <Box miw={150}>
      <Text size="sm" className="numbers" fw={550}>
        {scoreText(value.value, method)}
        {known && <Text span size="xs" c="dimmed" fw={400}>{`  ${scoreText(value.low, method)} to ${scoreText(value.high, method)}`}</Text>}
      </Text>
      <Box className="interval" aria-hidden>
        {known && <Box className="interval-range" left={place(value.low)} right={`calc(100% - ${place(value.high)})`} bg={color} />}
        <Box className="interval-point" left={place(value.value)} bg={color} />
      </Box>
    </Box>
  )
}
