// All benchmarks, running ones live.
import { Anchor, Badge, Box, Button, Group, Paper, Progress, Skeleton, Stack, Table, Text, Title } from '@mantine/core'
import { IconChecklist, IconPlus, IconScale, IconTrash } from '@tabler/icons-react'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'

import { Command, Empty, Problem } from '../../components/basics'
import type { Benchmark } from '../../gen/dressage/v1/benchmark_service_pb'
import { allGroup, isDone } from '../../lib/benchmark'
import { ago, dollars, environmentId, seconds, short } from '../../lib/format'
import { inTrash, useBenchmarks, useKept } from './data'
import { Rate } from './Rate'

export function StatusBadge({ benchmark }: { benchmark: Benchmark }) {
  if (!isDone(benchmark)) {
    return (
      <Badge variant="light" color="blue" className="whole" leftSection={<span className="pulse" />}>
        {benchmark.cancelled ? 'cancelling' : 'running'}
      </Badge>
    )
  }
  const color = benchmark.stoppedReason === '' ? 'teal' : benchmark.cancelled ? 'gray' : 'yellow'
  return (
    <Badge variant="light" color={color} className="whole">
      {benchmark.stoppedReason === '' ? 'complete' : benchmark.cancelled ? 'cancelled' : 'stopped at a gate'}
    </Badge>
  )
}

export function BenchmarksPage() {
  const { deleted = false } = useSearch({ from: '/benchmarks' })
  const navigate = useNavigate({ from: '/benchmarks' })
  const list = useBenchmarks()
  const kept = useKept(list.data ?? [])
  const shown = (list.data ?? []).filter((benchmark) => inTrash(benchmark, kept.data) === deleted)
  const now = Date.now() / 1000
  return (
    <Stack gap="md">
      <Group justify="space-between" align="flex-end">
        <Box>
          <Title order={1} size="h3">
            {deleted ? 'Trash of benchmarks' : 'Benchmarks'}
          </Title>
          <Text size="sm" c="dimmed">
            Many sessions, one table of results.
          </Text>
        </Box>
        <Group gap="xs">
          <Button variant="subtle" color="gray" size="compact-sm" leftSection={<IconTrash size={16} />} onClick={() => void navigate({ search: deleted ? {} : { deleted: true } })}>
            {deleted ? 'All benchmarks' : 'Trash'}
          </Button>
          {shown.length > 1 && (
            <Button component={Link} to="/benchmarks/compare" search={{ first: shown[1]!.name.split('/')[1], second: shown[0]!.name.split('/')[1] } as never} size="compact-sm" variant="subtle" leftSection={<IconScale size={16} />}>
              Compare
            </Button>
          )}
          <Button component={Link} to="/benchmarks/new" size="compact-sm" variant="light" leftSection={<IconPlus size={16} />}>
            New benchmark
          </Button>
        </Group>
      </Group>
      {list.error !== null && <Problem error={list.error} title="The benchmarks cannot be listed" />}
      {list.data === undefined ? (
        list.error === null && <Skeleton h={200} radius="md" />
      ) : shown.length === 0 ? (
        <Empty icon={deleted ? <IconTrash size={22} /> : <IconChecklist size={22} />} title={deleted ? 'The trash is empty' : 'No benchmarks yet'}>
          {!deleted && (
            <Stack gap="xs">
              <Text size="sm">A benchmark runs a session for each line of a CSV file, or for each run of an experiment.</Text>
              <Command text="dressage bench cases.csv" />
            </Stack>
          )}
        </Empty>
      ) : (
        <Paper withBorder radius="md">
          <Table.ScrollContainer minWidth={900}>
            <Table fz="sm" verticalSpacing={8} horizontalSpacing="md" highlightOnHover>
              <Table.Thead>
                <Table.Tr>
                  <Table.Th>Benchmark</Table.Th>
                  <Table.Th>State</Table.Th>
                  <Table.Th>Cases</Table.Th>
                  <Table.Th>Success rate</Table.Th>
                  <Table.Th ta="right">Mean score</Table.Th>
                  <Table.Th ta="right">Cost</Table.Th>
                  <Table.Th>Owner</Table.Th>
                  <Table.Th>Started</Table.Th>
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {shown.map((benchmark) => (
                  <Row key={benchmark.name} benchmark={benchmark} now={now} />
                ))}
              </Table.Tbody>
            </Table>
          </Table.ScrollContainer>
        </Paper>
      )}
    </Stack>
  )
}

function Row({ benchmark, now }: { benchmark: Benchmark; now: number }) {
  const id = benchmark.name.split('/')[1]!
  const all = allGroup(benchmark)
  const environments = [...new Set(benchmark.cases.map((entry) => environmentId(entry.environment)))]
  const start = seconds(benchmark.createTime)
  return (
    <Table.Tr>
      <Table.Td maw={260}>
        <Anchor component={Link} to="/benchmarks/$id" params={{ id } as never} size="sm" fw={550}>
          {id}
        </Anchor>
        <Text size="xs" c="dimmed" className="one-line">
          {[environments.slice(0, 3).join(', ') + (environments.length > 3 ? ` and ${environments.length - 3} more` : ''), benchmark.template?.model].filter(Boolean).join(' · ')}
        </Text>
      </Table.Td>
      <Table.Td>
        <StatusBadge benchmark={benchmark} />
        {benchmark.staged && !isDone(benchmark) && <Text size="xs" c="dimmed">{`stage ${benchmark.stage}`}</Text>}
      </Table.Td>
      <Table.Td miw={120}>
        <Text size="sm" className="numbers">{`${benchmark.completed} of ${benchmark.cases.length}`}</Text>
        <Progress size="sm" value={(100 * benchmark.completed) / (benchmark.cases.length || 1)} aria-label={`${benchmark.completed} of ${benchmark.cases.length} cases ended`} />
      </Table.Td>
      <Table.Td>
        <Rate value={all?.successRate} low={all?.successLow} high={all?.successHigh} />
      </Table.Td>
      <Table.Td ta="right" className="numbers">
        {all?.meanScore === undefined ? '–' : short(all.meanScore)}
      </Table.Td>
      <Table.Td ta="right" className="numbers">
        {dollars(all?.cost)}
      </Table.Td>
      <Table.Td className="plain">{benchmark.owner || '–'}</Table.Td>
      <Table.Td className="numbers">{start === null ? '–' : ago(start, now)}</Table.Td>
    </Table.Tr>
  )
}
