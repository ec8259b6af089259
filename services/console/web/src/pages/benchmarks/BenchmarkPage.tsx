// One benchmark: its stages while they run, success rates by group, and its cases.
import { Alert, Box, Button, Group, Menu, Pagination, SegmentedControl, Select, Skeleton, Stack, Table, Text, Title } from '@mantine/core'
import { notifications } from '@mantine/notifications'
import { IconDownload, IconPlayerStop, IconScale, IconSearchOff, IconTrash } from '@tabler/icons-react'
import { useMutation, useQueryClient } from '@tanstack/react-query'
import { Link, useParams } from '@tanstack/react-router'
import { useState } from 'react'

import { benchmarks, errorText, isNotFound, sessions } from '../../api/clients'
import { Empty, Fact, Panel, Problem, StateBadge } from '../../components/basics'
import { modals } from '../../components/confirm'
import type { Benchmark, BenchmarkCase } from '../../gen/dressage/v1/benchmark_service_pb'
import { SessionState } from '../../gen/dressage/v1/session_pb'
import { allGroup, casesCsv, groupsCsv, isDone, isMatrix, stagesOf } from '../../lib/benchmark'
import { MOST_ITEMS } from '../../lib/compare'
import { save } from '../../lib/csv'
import { compact, dollars, duration, environmentId, isOver, seconds, short } from '../../lib/format'
import { StatusBadge } from './BenchmarksPage'
import { inTrash, readKept, startedOf, useBenchmark, useKept } from './data'
import { Rate } from './Rate'

const PER_PAGE = 50
const AT_ONCE = 8

export function BenchmarkPage() {
  const { id } = useParams({ from: '/benchmarks/$id' })
  const resource = useBenchmark(`benchmarks/${id}`)
  if (isNotFound(resource.error)) {
    return (
      <Empty icon={<IconSearchOff size={22} />} title="There is no such benchmark">
        <Link to="/benchmarks">All benchmarks</Link>
      </Empty>
    )
  }
  if (resource.data === undefined) return resource.error === null ? <Skeleton h={320} radius="md" /> : <Problem error={resource.error} />
  const benchmark = resource.data
  return (
    <Stack gap="md">
      <Head id={id} benchmark={benchmark} />
      {benchmark.staged && <Stages benchmark={benchmark} />}
      <Groups benchmark={benchmark} />
      <Cases benchmark={benchmark} />
    </Stack>
  )
}

/** Call for each name, some at a time, and count what failed. */
async function forEach(names: string[], act: (name: string) => Promise<unknown>): Promise<unknown[]> {
  const errors: unknown[] = []
  for (let at = 0; at < names.length; at += AT_ONCE) {
    const results = await Promise.allSettled(names.slice(at, at + AT_ONCE).map(act))
    errors.push(...results.flatMap((result) => (result.status === 'rejected' ? [result.reason as unknown] : [])))
  }
  return errors
}

function Head({ id, benchmark }: { id: string; benchmark: Benchmark }) {
  const client = useQueryClient()
  const kept = useKept([benchmark])
  const all = allGroup(benchmark)
  const trash = inTrash(benchmark, kept.data)
  const done = isDone(benchmark)
  const start = seconds(benchmark.createTime)
  const names = startedOf(benchmark)
  const act = useMutation({
    mutationFn: async (what: 'cancel' | 'delete' | 'restore') => {
      if (what === 'cancel') return benchmarks.cancelBenchmark({ name: benchmark.name })
      const known = await readKept()
      const there = names.filter((name) => known.has(name) === (what === 'delete'))
      const errors = await forEach(there, (name) => (what === 'delete' ? sessions.deleteSession({ name }) : sessions.undeleteSession({ name })))
      if (errors.length > 0) throw errors[0]
      notifications.show({ message: `${there.length} ${what === 'delete' ? 'sessions are in the trash' : 'sessions restored'}` })
      return null
    },
    onSettled: () => Promise.all([client.invalidateQueries({ queryKey: ['benchmark'] }), client.invalidateQueries({ queryKey: ['sessions'] }), client.invalidateQueries({ queryKey: ['benchmarks'] })]),
    onError: (error) => notifications.show({ color: 'red', title: 'Not done', message: errorText(error) }),
  })
  const template = benchmark.template
  return (
    <Stack gap="sm">
      <Group justify="space-between" align="flex-start">
        <Box miw={0}>
          <Group gap="xs" mb={4}>
            <StatusBadge benchmark={benchmark} />
            {trash && <Text size="xs" c="red">in the trash</Text>}
            <Text size="xs" c="dimmed" className="one-line">
              {[...(isMatrix(benchmark) ? ['an experiment'] : [template?.methodSpec.case ?? 'reward', template?.model || "the server's default model"]), benchmark.staged ? `stages with gate ${short(benchmark.stageGate)}` : 'without stages', benchmark.owner].filter(Boolean).join(' · ')}
            </Text>
          </Group>
          <Title order={1} size="h3">{`Benchmark ${id}`}</Title>
        </Box>
        <Group gap={6}>
          <Button component={Link} to="/benchmarks/compare" search={{ first: id } as never} variant="default" size="compact-sm" leftSection={<IconScale size={15} />}>
            Compare
          </Button>
          <Menu position="bottom-end" withinPortal>
            <Menu.Target>
              <Button variant="default" size="compact-sm" leftSection={<IconDownload size={15} />}>
                CSV
              </Button>
            </Menu.Target>
            <Menu.Dropdown>
              <Menu.Item onClick={() => save(`${id}-cases.csv`, casesCsv(benchmark))}>cases</Menu.Item>
              <Menu.Item onClick={() => save(`${id}-groups.csv`, groupsCsv(benchmark))}>groups</Menu.Item>
            </Menu.Dropdown>
          </Menu>
          {!done ? (
            <Button
              variant="light"
              color="red"
              size="compact-sm"
              leftSection={<IconPlayerStop size={15} />}
              disabled={benchmark.cancelled}
              onClick={() => modals.confirm({ title: 'Cancel this benchmark?', text: 'Its running sessions are cancelled, and no more are started. Results so far are kept.', action: 'Cancel it', onConfirm: () => act.mutateAsync('cancel') })}
            >
              Cancel
            </Button>
          ) : trash ? (
            <Button variant="light" size="compact-sm" loading={act.isPending} onClick={() => act.mutate('restore')}>
              Restore
            </Button>
          ) : (
            <Button
              variant="subtle"
              color="red"
              size="compact-sm"
              leftSection={<IconTrash size={15} />}
              loading={act.isPending}
              disabled={names.length === 0 || kept.data === undefined}
              onClick={() =>
                modals.confirm({
                  title: 'Delete this benchmark?',
                  text: `Its ${names.length} sessions go to the trash, and the benchmark with them. All can be restored until the server removes them.`,
                  action: 'Delete',
                  onConfirm: () => act.mutateAsync('delete'),
                })
              }
            >
              Delete
            </Button>
          )}
        </Group>
      </Group>
      <Group gap="xl" className="facts" align="flex-start">
        <Fact label="Cases">{`${benchmark.completed} of ${benchmark.cases.length}`}</Fact>
        <Fact label="Passed">{benchmark.passed}</Fact>
        <Box>
          <Text size="xs" c="dimmed">
            Success rate
          </Text>
          <Rate value={all?.successRate} low={all?.successLow} high={all?.successHigh} />
        </Box>
        <Fact label="Mean score">{all?.meanScore === undefined ? '–' : short(all.meanScore)}</Fact>
        <Fact label="Iterations to pass">{all?.iterationsToPass === undefined ? '–' : all.iterationsToPass.toFixed(1)}</Fact>
        <Fact label="Steps">{compact(all?.envSteps ?? 0n)}</Fact>
        <Fact label="Cost">{dollars(all?.cost)}</Fact>
        <Fact label="Time">{start === null ? '–' : duration((seconds(benchmark.endTime) ?? Date.now() / 1000) - start)}</Fact>
      </Group>
      {benchmark.stoppedReason !== '' && (
        <Alert color={benchmark.cancelled ? 'gray' : 'yellow'} p="xs">
          <Text size="sm" className="plain">{`Stopped: ${benchmark.stoppedReason}`}</Text>
        </Alert>
      )}
    </Stack>
  )
}

/** The stages in order, with the score that the gate compares. */
function Stages({ benchmark }: { benchmark: Benchmark }) {
  const stages = stagesOf(benchmark)
  const done = isDone(benchmark)
  return (
    <Panel title="Stages" pad="sm" right={<Text size="xs" c="dimmed">{`The next stage starts if the mean score so far reaches ${short(benchmark.stageGate)}.`}</Text>}>
      <Box className="stages" component="ol" tabIndex={0} aria-label="Stages">
        {stages.map((stage) => {
          const current = stage.number === benchmark.stage && !done
          const reached = stage.score !== null && stage.score >= benchmark.stageGate
          return (
            <li key={stage.number} className={`stage ${current ? 'current' : ''}`} aria-current={current ? 'step' : undefined}>
              <Text size="xs" fw={600}>{`Stage ${stage.number}`}</Text>
              <Text size="sm" className="numbers">{`${stage.completed} of ${stage.total}${stage.running > 0 ? `, ${stage.running} running` : ''}`}</Text>
              <Box className="stage-cells" aria-hidden>
                {benchmark.cases
                  .filter((entry) => entry.stage === stage.number)
                  .map((entry, index) => (
                    <span key={index} className={`stage-cell ${cellOf(entry)}`} />
                  ))}
              </Box>
              <Text size="xs" c="dimmed" className="numbers">
                {stage.completed === 0 ? (stage.running > 0 ? 'none has ended' : 'not begun') : stage.score === null ? '' : `mean so far ${short(stage.score)}${stage.completed < stage.total ? '' : reached ? ', passes the gate' : ', below the gate'}`}
              </Text>
            </li>
          )
        })}
      </Box>
    </Panel>
  )
}

function cellOf(entry: BenchmarkCase): string {
  if (entry.state === SessionState.SUCCEEDED) return 'passed'
  if (isOver(entry.state)) return 'failed'
  return entry.session === '' ? '' : 'running'
}

function Groups({ benchmark }: { benchmark: Benchmark }) {
  const kinds = [...new Set(benchmark.groups.map((group) => group.kind))].filter((kind) => kind !== 'all')
  const [chosen, setChosen] = useState<string | null>(null)
  const kind = chosen ?? ['category', 'method'].find((name) => kinds.includes(name)) ?? kinds[0]
  if (kind === undefined) return null
  return (
    <Panel title="Success by group" pad="sm" right={<SegmentedControl size="xs" aria-label="Group by" data={kinds} value={kind} onChange={setChosen} />}>
      <Table.ScrollContainer minWidth={640}>
        <Table fz="sm" verticalSpacing={7}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th tt="capitalize">{kind}</Table.Th>
              <Table.Th ta="right">Ended</Table.Th>
              <Table.Th ta="right">Passed</Table.Th>
              <Table.Th>Success rate</Table.Th>
              <Table.Th ta="right">Mean score</Table.Th>
              <Table.Th ta="right">Iterations to pass</Table.Th>
              <Table.Th ta="right">Steps</Table.Th>
              <Table.Th ta="right">Cost</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {benchmark.groups
              .filter((group) => group.kind === kind || group.kind === 'all')
              .map((group) => (
                <Table.Tr key={`${group.kind} ${group.value}`} fw={group.kind === 'all' ? 600 : 400}>
                  <Table.Td className="plain">{group.value}</Table.Td>
                  <Table.Td ta="right" className="numbers">{`${group.completed} of ${group.total}`}</Table.Td>
                  <Table.Td ta="right" className="numbers">{group.passed}</Table.Td>
                  <Table.Td>
                    <Rate value={group.successRate} low={group.successLow} high={group.successHigh} />
                  </Table.Td>
                  <Table.Td ta="right" className="numbers">{group.meanScore === undefined ? '–' : short(group.meanScore)}</Table.Td>
                  <Table.Td ta="right" className="numbers">{group.iterationsToPass === undefined ? '–' : group.iterationsToPass.toFixed(1)}</Table.Td>
                  <Table.Td ta="right" className="numbers">{compact(group.envSteps)}</Table.Td>
                  <Table.Td ta="right" className="numbers">{dollars(group.cost)}</Table.Td>
                </Table.Tr>
              ))}
          </Table.Tbody>
        </Table>
      </Table.ScrollContainer>
      <Text size="xs" c="dimmed" mt={6}>
        Intervals are 95 % Wilson intervals over the ended cases.
      </Text>
    </Panel>
  )
}

const SHOWN = ['all', 'running', 'passed', 'not passed', 'waiting']

function fits(entry: BenchmarkCase, shown: string): boolean {
  if (shown === 'running') return entry.session !== '' && !isOver(entry.state)
  if (shown === 'passed') return entry.state === SessionState.SUCCEEDED
  if (shown === 'not passed') return isOver(entry.state) && entry.state !== SessionState.SUCCEEDED
  return shown === 'all' || (entry.session === '' && !isOver(entry.state))
}

function Cases({ benchmark }: { benchmark: Benchmark }) {
  const [shown, setShown] = useState('all')
  const [page, setPage] = useState(1)
  const numbered = benchmark.cases.map((entry, index) => ({ entry, number: index + 1 })).filter(({ entry }) => fits(entry, shown))
  const matrix = isMatrix(benchmark)
  const here = numbered.slice((page - 1) * PER_PAGE, page * PER_PAGE)
  const compared = here.map(({ entry }) => entry.session.split('/')[1]).filter(Boolean).slice(0, MOST_ITEMS)
  return (
    <Panel
      title="Cases"
      pad="sm"
      right={
        <Group gap="xs">
          {compared.length > 1 && (
            <Button component={Link} to="/compare" search={{ of: compared.join(',') } as never} size="compact-sm" variant="light" leftSection={<IconScale size={15} />}>
              {`Compare the first ${compared.length}`}
            </Button>
          )}
          <Select
            aria-label="Shown cases"
            size="xs"
            w={140}
            data={SHOWN}
            value={shown}
            allowDeselect={false}
            onChange={(value) => {
              setShown(value ?? 'all')
              setPage(1)
            }}
          />
        </Group>
      }
    >
      <Table.ScrollContainer minWidth={980}>
        <Table fz="sm" verticalSpacing={7} highlightOnHover>
          <Table.Thead>
            <Table.Tr>
              <Table.Th ta="right">#</Table.Th>
              <Table.Th>Intent</Table.Th>
              <Table.Th>Environment</Table.Th>
              <Table.Th>{matrix ? 'Method' : 'Category'}</Table.Th>
              <Table.Th>{matrix ? 'Run' : 'Difficulty'}</Table.Th>
              {benchmark.staged && <Table.Th ta="right">Stage</Table.Th>}
              <Table.Th>State</Table.Th>
              <Table.Th ta="right">Score</Table.Th>
              <Table.Th ta="right">Iterations</Table.Th>
              <Table.Th ta="right">Cost</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {here.map(({ entry, number }) => (
              <CaseRow key={number} entry={entry} number={number} staged={benchmark.staged} />
            ))}
          </Table.Tbody>
        </Table>
      </Table.ScrollContainer>
      {numbered.length === 0 && <Text size="sm" c="dimmed" p="sm">{`No case is ${shown}.`}</Text>}
      {numbered.length > PER_PAGE && <Pagination mt="sm" size="sm" total={Math.ceil(numbered.length / PER_PAGE)} value={page} onChange={setPage} />}
    </Panel>
  )
}

function CaseRow({ entry, number, staged }: { entry: BenchmarkCase; number: number; staged: boolean }) {
  const id = entry.session.split('/')[1]
  const known = entry.intervalLow !== undefined && entry.intervalHigh !== undefined && entry.intervalHigh > entry.intervalLow
  return (
    <Table.Tr>
      <Table.Td ta="right" className="numbers">{number}</Table.Td>
      <Table.Td maw={360}>
        {id === undefined ? (
          <Text size="sm" className="one-line">
            {entry.intent.slice(0, 300)}
          </Text>
        ) : (
          <Link to="/sessions/$id" params={{ id }} className="row-link">
            <Text size="sm" className="one-line" title={entry.intent.slice(0, 500)}>
              {entry.intent.slice(0, 300)}
            </Text>
          </Link>
        )}
        {entry.reason !== '' && (
          <Text size="xs" c="dimmed" className="one-line" title={entry.reason}>
            {entry.reason}
          </Text>
        )}
      </Table.Td>
      <Table.Td className="plain">{entry.environmentLabel || environmentId(entry.environment)}</Table.Td>
      <Table.Td className="plain">{entry.method || entry.category}</Table.Td>
      <Table.Td className="plain">{entry.method === '' ? entry.difficulty : entry.run}</Table.Td>
      {staged && <Table.Td ta="right" className="numbers">{entry.stage}</Table.Td>}
      <Table.Td>{entry.state === SessionState.UNSPECIFIED ? <Text size="sm" c="dimmed">waiting</Text> : <StateBadge state={entry.state} />}</Table.Td>
      <Table.Td ta="right" className="numbers">
        {entry.score === undefined ? '–' : short(entry.score)}
        {known && <Text span size="xs" c="dimmed">{` (${short(entry.intervalLow!)} to ${short(entry.intervalHigh!)})`}</Text>}
      </Table.Td>
      <Table.Td ta="right" className="numbers">{entry.iterations || '–'}</Table.Td>
      <Table.Td ta="right" className="numbers">{dollars(entry.cost)}</Table.Td>
    </Table.Tr>
  )
}
