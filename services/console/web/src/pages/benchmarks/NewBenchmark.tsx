// A new benchmark: cases from a file or as text, and the settings that all their sessions share.
import { Alert, Badge, Box, Button, FileButton, Group, NumberInput, Stack, Switch, Table, Text, Textarea } from '@mantine/core'
import { useDebouncedValue } from '@mantine/hooks'
import { IconFileUpload } from '@tabler/icons-react'
import { useMutation, useQuery } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { useMemo, useState } from 'react'

import { benchmarks, errorText, fieldErrors, sessions } from '../../api/clients'
import { useEnvironments } from '../../api/environments'
import { Fact, Panel } from '../../components/basics'
import type { Case } from '../../lib/cases'
import { COLUMNS, MOST_CASES, parseCases } from '../../lib/cases'
import { duration, environmentId } from '../../lib/format'
import type { Form } from '../new/form'
import { readForm, specOf, START } from '../new/form'
import { FormPage, type SetField, useForm } from '../new/FormPage'
import { Settings } from '../new/Settings'

const EXAMPLE = `${COLUMNS.join(',')}\nHopper-v5,hop forward fast,locomotion,easy\nHalfCheetah-v5,run backward,locomotion,medium\n`
const PREVIEW = 20
const MOST_BYTES = 4_000_000
const METHODS = ['reward', 'parameters', 'code', 'program']

/** The settings of all sessions, with the text of the cases and the name of their file, and how the stages run. */
type BenchmarkForm = Form & { text: string; file: string; staged: boolean; gate: number | string }

const FIRST: BenchmarkForm = { ...START, environment: '', text: '', file: '', staged: true, gate: 0.7 }

export function NewBenchmark() {
  const navigate = useNavigate()
  const cards = useEnvironments()
  const { form, set, requestId, drop } = useForm('benchmark', FIRST)
  const { text, file, staged, gate } = form
  const [tooLarge, setTooLarge] = useState(false)
  const known = useMemo(() => (cards.data ?? []).map((card) => card.name), [cards.data])
  const { cases, problems } = useMemo(() => parseCases(text, known), [text, known])
  const methods = useMemo(() => {
    const used = [...new Set(cases.map((entry) => entry.environment))].flatMap((name) => cards.data?.filter((card) => card.name === name) ?? [])
    return METHODS.filter((method) => used.every((card) => card.methods.includes(method)))
  }, [cases, cards.data])
  const chosen = methods.includes(form.method) ? form : { ...form, method: methods[0] ?? 'reward' }
  const { problem } = useMemo(() => readForm(chosen), [chosen])
  const start = useMutation({
    mutationFn: () =>
      benchmarks.createBenchmark({ cases, template: specOf({ ...chosen, intent: '', environment: '' }), staged, stageGate: Number(gate) || 0, requestId: requestId([cases, chosen]) }),
    onSuccess: async (benchmark) => {
      await navigate({ to: '/benchmarks/$id', params: { id: benchmark.name.split('/')[1]! } as never })
      drop?.()
    },
  })
  const fields = start.error === null ? {} : fieldErrors(start.error)
  const wrong = (name: string) => fields[`template.${name}`] ?? fields[name]
  const read = async (opened: File | null) => {
    if (opened === null) return
    setTooLarge(opened.size > MOST_BYTES)
    if (opened.size > MOST_BYTES) return
    set('file', opened.name)
    set('text', await opened.text())
  }
  return (
    <FormPage
      title="New benchmark"
      action={cases.length === 0 ? 'Start the benchmark' : `Start ${cases.length} ${cases.length === 1 ? 'session' : 'sessions'}`}
      pending={start.isPending}
      disabled={cases.length === 0 || methods.length === 0 || problem !== undefined}
      onStart={() => start.mutate()}
      onClear={drop}
      fields={
        <>
          <Panel
            title="Cases"
            right={
              <Group gap="xs">
                {file !== '' && <Text size="xs" c="dimmed">{file}</Text>}
                <FileButton onChange={(opened) => void read(opened)} accept=".csv,.json,text/csv,application/json" inputProps={{ 'aria-label': 'File of cases' }}>
                  {(props) => (
                    <Button {...props} size="compact-sm" variant="light" leftSection={<IconFileUpload size={15} />}>
                      Open a CSV or JSON file
                    </Button>
                  )}
                </FileButton>
              </Group>
            }
          >
            <Stack gap="sm">
              <Textarea
                aria-label="Cases"
                description={`The first line names the columns: ${COLUMNS.join(', ')}. At most ${MOST_CASES.toLocaleString('en')} cases.`}
                placeholder={EXAMPLE}
                autosize
                minRows={5}
                maxRows={12}
                value={text}
                onChange={(event) => set('text', event.currentTarget.value)}
                styles={{ input: { fontFamily: 'var(--mantine-font-family-monospace)', fontSize: 12.5 } }}
              />
              {tooLarge && <Alert color="red" role="alert" p="xs">The file is larger than 4 MB.</Alert>}
              {problems.length > 0 && (
                <Alert color="red" role="alert" p="xs" title="The cases cannot be read">
                  {problems.map((problem) => (
                    <Text key={problem} size="sm" className="plain">
                      {problem}
                    </Text>
                  ))}
                </Alert>
              )}
              {cases.length > 0 && <Preview cases={cases} />}
            </Stack>
          </Panel>
          <Settings form={chosen} set={set as SetField} methods={methods} wrong={wrong} problem={problem} />
        </>
      }
      beside={
        <>
          <Panel title="Stages">
            <Stack gap="sm">
              <Switch label="Run stage by stage" description="Each stage is a sample of all environments and difficulties" checked={staged} onChange={(event) => set('staged', event.currentTarget.checked)} />
              {staged && <NumberInput label="Gate" description="Mean score so far from which the next stage starts" min={0.01} max={1} step={0.05} decimalScale={2} value={gate} onChange={(value) => set('gate', value)} />}
            </Stack>
          </Panel>
          <Plan cases={cases} form={chosen} />
          {start.error !== null && (
            <Alert color="red" role="alert" title="The benchmark was not started">
              <Text size="sm" className="plain">
                {errorText(start.error)}
              </Text>
            </Alert>
          )}
        </>
      }
    />
  )
}

function Preview({ cases }: { cases: Case[] }) {
  return (
    <Box>
      <Table.ScrollContainer minWidth={460} maxHeight={320}>
        <Table fz="xs" verticalSpacing={4} aria-label="Cases that were read">
          <Table.Thead>
            <Table.Tr>
              <Table.Th>Environment</Table.Th>
              <Table.Th>Intent</Table.Th>
              <Table.Th>Category</Table.Th>
              <Table.Th>Difficulty</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {cases.slice(0, PREVIEW).map((entry, index) => (
              <Table.Tr key={index}>
                <Table.Td>{environmentId(entry.environment)}</Table.Td>
                <Table.Td className="plain">{entry.intent.slice(0, 300)}</Table.Td>
                <Table.Td className="plain">{entry.category}</Table.Td>
                <Table.Td className="plain">{entry.difficulty}</Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </Table.ScrollContainer>
      {cases.length > PREVIEW && <Text size="xs" c="dimmed" mt={4}>{`and ${cases.length - PREVIEW} more`}</Text>}
    </Box>
  )
}

/** What the benchmark may take, from the server's estimate of one case of each environment. */
function Plan({ cases, form }: { cases: Case[]; form: Form }) {
  const counts = new Map<string, { entry: Case; count: number }>()
  for (const entry of cases) {
    const known = counts.get(entry.environment)
    if (known === undefined) counts.set(entry.environment, { entry, count: 1 })
    else known.count += 1
  }
  const [settled] = useDebouncedValue(JSON.stringify([[...counts.values()], form]), 400)
  const plan = useQuery({
    queryKey: ['benchmark-estimate', settled],
    queryFn: async ({ signal }) => {
      const [kinds, settings] = JSON.parse(settled) as [{ entry: Case; count: number }[], Form]
      const answers = await Promise.all(
        kinds.slice(0, 40).map(({ entry }) => sessions.estimateSession({ spec: specOf({ ...settings, intent: entry.intent, environment: entry.environment }) }, { signal })),
      )
      let minutes = 0
      let dollars: number | undefined = 0
      answers.forEach((answer, index) => {
        const rounds = (answer.spec?.maxIterations ?? 0) * kinds[index]!.count
        minutes += Math.max(answer.minutesPerIteration, answer.mostMinutesPerIteration) * rounds
        const price = answer.usesLanguageModel ? (answer.mostDollarsPerIteration ?? answer.dollarsPerIteration) : 0
        dollars = dollars === undefined || price === undefined ? undefined : dollars + price * rounds
      })
      return { minutes, dollars, model: answers[0]?.usesLanguageModel ? answers[0].spec?.model : 'no language model' }
    },
    enabled: cases.length > 0,
    retry: false,
  })
  return (
    <Panel title="Plan" right={plan.data !== undefined && <Badge variant="light" color="gray">{plan.data.model}</Badge>}>
      {cases.length === 0 ? (
        <Text size="sm" c="dimmed">
          Open a file of cases to see what the benchmark would use.
        </Text>
      ) : plan.error !== null ? (
        <Text size="sm" c="red" className="plain" role="alert">
          {errorText(plan.error)}
        </Text>
      ) : (
        <Stack gap="sm">
          <Group gap="xl">
            <Fact label="Sessions">{cases.length}</Fact>
            <Fact label="Environments">{counts.size}</Fact>
            <Fact label="One after another, at most">{plan.data === undefined ? 'estimating' : duration(plan.data.minutes * 60)}</Fact>
            <Fact label="Cost at most">{plan.data === undefined ? 'estimating' : plan.data.dollars === undefined ? 'unknown price' : plan.data.dollars === 0 ? 'none' : `$${plan.data.dollars.toFixed(2)}`}</Fact>
          </Group>
          <Text size="xs" c="dimmed">
            The server runs a few of them at a time (DRESSAGE_ORCHESTRATOR_BENCHMARK_PARALLEL, 2 unless it is set), and within your quota.
          </Text>
        </Stack>
      )}
    </Panel>
  )
}
