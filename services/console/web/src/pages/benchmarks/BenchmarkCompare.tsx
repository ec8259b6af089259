// Two benchmarks side by side: success rates by group with intervals, and their difference. The address keeps the choice.
import { Anchor, Button, Group, Select, SimpleGrid, Skeleton, Stack, Table, Text, Title } from '@mantine/core'
import { IconDownload, IconScale } from '@tabler/icons-react'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'

import { Empty, Fact, Panel, Problem } from '../../components/basics'
import type { Benchmark } from '../../gen/dressage/v1/benchmark_service_pb'
import type { Difference } from '../../lib/benchmarkCompare'
import { matchedOf, pairsCsv, pairsOf } from '../../lib/benchmarkCompare'
import { save } from '../../lib/csv'
import { short } from '../../lib/format'
import { useBenchmark, useBenchmarks } from './data'
import { Rate } from './Rate'

const idOf = (benchmark: Benchmark) => benchmark.name.split('/')[1]!

export function BenchmarkCompare() {
  const { first, second } = useSearch({ from: '/benchmarks/compare' })
  const navigate = useNavigate({ from: '/benchmarks/compare' })
  const list = useBenchmarks()
  const all = list.data ?? []
  const [left, right] = [first, second].map((id) => all.find((benchmark) => idOf(benchmark) === id))
  const [one, other] = [useBenchmark(left?.name ?? ''), useBenchmark(right?.name ?? '')]
  const options = all.map((benchmark) => ({ value: idOf(benchmark), label: [idOf(benchmark), benchmark.template?.methodSpec.case, benchmark.template?.model].filter(Boolean).join(' · ') }))
  const choose = (part: { first?: string; second?: string }) => void navigate({ search: (old) => ({ ...old, ...part }), replace: true })
  return (
    <Stack gap="md">
      <Group justify="space-between">
        <Title order={1} size="h3">
          Compare benchmarks
        </Title>
        {one.data !== undefined && other.data !== undefined && (
          <Button variant="default" size="compact-sm" leftSection={<IconDownload size={15} />} onClick={() => save(`${first}-${second}.csv`, pairsCsv(one.data, other.data))}>
            CSV
          </Button>
        )}
      </Group>
      {list.error !== null && <Problem error={list.error} title="The benchmarks cannot be listed" />}
      <SimpleGrid cols={{ base: 1, sm: 2 }} maw={760}>
        <Select label="First" data={options} value={left === undefined ? null : first!} onChange={(value) => value !== null && choose({ first: value })} searchable allowDeselect={false} placeholder="a benchmark" />
        <Select label="Second" data={options} value={right === undefined ? null : second!} onChange={(value) => value !== null && choose({ second: value })} searchable allowDeselect={false} placeholder="another benchmark" />
      </SimpleGrid>
      {left === undefined || right === undefined ? (
        <Empty icon={<IconScale size={22} />} title="Choose two benchmarks">
          Their success rates are shown side by side, with the difference of the second from the first.
        </Empty>
      ) : one.data === undefined || other.data === undefined ? (
        <Loading error={one.error ?? other.error} />
      ) : (
        <Comparison first={one.data} second={other.data} />
      )}
    </Stack>
  )
}

function Loading({ error }: { error: Error | null }) {
  return error === null ? <Skeleton h={320} radius="md" /> : <Problem error={error} />
}

function Comparison({ first, second }: { first: Benchmark; second: Benchmark }) {
  const matched = matchedOf(first, second)
  const names = [first, second].map((benchmark) => (
    <Anchor key={benchmark.name} component={Link} to="/benchmarks/$id" params={{ id: idOf(benchmark) } as never} size="sm" inherit>
      {idOf(benchmark)}
    </Anchor>
  ))
  return (
    <>
      <Panel title="Success by group" pad="sm">
        <Table.ScrollContainer minWidth={860}>
          <Table fz="sm" verticalSpacing={7} aria-label="Success rates of both">
            <Table.Thead>
              <Table.Tr>
                <Table.Th>Group</Table.Th>
                <Table.Th>{names[0]}</Table.Th>
                <Table.Th>{names[1]}</Table.Th>
                <Table.Th>Difference</Table.Th>
                <Table.Th ta="right">Mean scores</Table.Th>
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {pairsOf(first, second).map((pair) => (
                <Table.Tr key={`${pair.kind} ${pair.value}`} fw={pair.kind === 'all' ? 600 : 400}>
                  <Table.Td className="plain">
                    {pair.value}
                    {pair.kind !== 'all' && (
                      <Text size="xs" c="dimmed">
                        {pair.kind}
                      </Text>
                    )}
                  </Table.Td>
                  {[pair.first, pair.second].map((group, index) => (
                    <Table.Td key={index}>
                      <Rate value={group?.successRate} low={group?.successLow} high={group?.successHigh} />
                      {group !== undefined && <Text size="xs" c="dimmed" fw={400} className="numbers">{`${group.passed} of ${group.completed} ended`}</Text>}
                    </Table.Td>
                  ))}
                  <Table.Td>
                    <Change difference={pair.difference} />
                  </Table.Td>
                  <Table.Td ta="right" className="numbers">
                    {[pair.first, pair.second].map((group) => (group?.meanScore === undefined ? '–' : short(group.meanScore))).join(' and ')}
                  </Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </Table.ScrollContainer>
        <Text size="xs" c="dimmed" mt={6}>
          Rates have 95 % Wilson intervals over the ended cases, differences Newcombe's interval, which takes the cases of the two as independent.
        </Text>
      </Panel>
      <Panel title="The same cases" pad="sm">
        {matched.cases === 0 ? (
          <Text size="sm" c="dimmed">
            No case with the same environment and intent has ended in both.
          </Text>
        ) : (
          <Group gap="xl">
            <Fact label="Ended in both">{matched.cases}</Fact>
            <Fact label="Passed in both">{matched.both}</Fact>
            <Fact label="Only in the first">{matched.onlyFirst}</Fact>
            <Fact label="Only in the second">{matched.onlySecond}</Fact>
            <Fact label="In neither">{matched.neither}</Fact>
          </Group>
        )}
      </Panel>
    </>
  )
}

/** In percentage points. Where the interval holds 0, the difference may be chance. */
function Change({ difference }: { difference: Difference | null }) {
  if (difference === null) return <Text size="sm" c="dimmed">–</Text>
  const points = (value: number) => `${value > 0 ? '+' : value < 0 ? '−' : ''}${Math.abs(Math.round(value * 100))}`
  const clear = difference.low > 0 || difference.high < 0
  return (
    <>
      <Text size="sm" className="numbers" fw={clear ? 700 : 400}>{`${points(difference.value)} points`}</Text>
      <Text size="xs" c="dimmed" className="numbers" fw={400}>{`${points(difference.low)} to ${points(difference.high)}${clear ? '' : ', may be chance'}`}</Text>
    </>
  )
}
