// A new session: what to learn, where and how, and the plan before it starts.
import { create } from '@bufbuild/protobuf'
import { Accordion, Alert, Badge, Box, Button, Chip, Grid, Group, NumberInput, SegmentedControl, Select, Stack, Switch, Text, Textarea, TextInput, Title } from '@mantine/core'
import { useDebouncedValue } from '@mantine/hooks'
import { IconInfoCircle, IconPlayerPlay } from '@tabler/icons-react'
import { keepPreviousData, useMutation, useQuery } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { useEffect, useMemo, useState } from 'react'

import { environments, errorText, fieldErrors, sessions } from '../api/clients'
import { Command, Fact, Panel, Problem } from '../components/basics'
import type { Environment } from '../gen/dressage/v1/environment_service_pb'
import type { SessionSpec } from '../gen/dressage/v1/session_pb'
import { CodeSpecSchema, ParameterSpecSchema, ProgramSpecSchema, RewardSpecSchema, SessionSpecSchema } from '../gen/dressage/v1/session_pb'
import { runCommand } from '../lib/command'
import { compact, duration, environmentId } from '../lib/format'

type Form = {
  intent: string
  environment: string
  method: string
  model: string
  iterations: number | ''
  threshold: number | ''
  seeds: number | ''
  steps: number | ''
  dollars: number | ''
  minutes: number | ''
  approve: boolean
}

const START: Form = {
  intent: '',
  environment: 'environments/HalfCheetah-v5',
  method: 'reward',
  model: '',
  iterations: '',
  threshold: '',
  seeds: '',
  steps: '',
  dollars: '',
  minutes: '',
  approve: false,
}

const METHODS: Record<string, string> = {
  reward: 'An author writes a reward and a judge; PPO trains on it.',
  parameters: 'Searches the numbers of a small policy for a high return.',
  code: 'A model writes the policy in Python.',
  program: 'Searches programs of a small language.',
}

async function everyEnvironment(): Promise<Environment[]> {
  const all: Environment[] = []
  let pageToken = ''
  do {
    const page = await environments.listEnvironments({ pageSize: 200, pageToken })
    all.push(...page.environments)
    pageToken = page.nextPageToken
  } while (pageToken !== '')
  return all
}

function methodSpec(form: Form): SessionSpec['methodSpec'] {
  if (form.method === 'parameters') return { case: 'parameters', value: create(ParameterSpecSchema) }
  if (form.method === 'code') return { case: 'code', value: create(CodeSpecSchema) }
  if (form.method === 'program') return { case: 'program', value: create(ProgramSpecSchema) }
  const value = create(RewardSpecSchema, { seeds: Number(form.seeds || 0), stepsPerMember: BigInt(Math.round(Number(form.steps || 0))) })
  return { case: 'reward', value }
}

function specOf(form: Form): SessionSpec {
  const spec = create(SessionSpecSchema, {
    intent: form.intent.trim(),
    environment: form.environment,
    model: form.model.trim(),
    maxIterations: Number(form.iterations || 0),
    passThreshold: Number(form.threshold || 0),
    approveBeforeEvaluation: form.approve,
  })
  spec.methodSpec = methodSpec(form)
  if (form.dollars !== '' || form.minutes !== '') {
    spec.budget = {
      $typeName: 'dressage.v1.Budget',
      envSteps: 0n,
      tokens: 0n,
      ...(form.dollars === '' ? {} : { dollars: Number(form.dollars) }),
      ...(form.minutes === ''
        ? {}
        : { wallTime: { $typeName: 'google.protobuf.Duration', seconds: BigInt(Math.round(Number(form.minutes) * 60)), nanos: 0 } }),
    }
  }
  return spec
}

function formOf(spec: SessionSpec): Form {
  const reward = spec.methodSpec.case === 'reward' ? spec.methodSpec.value : undefined
  return {
    intent: spec.intent,
    environment: spec.environment,
    method: spec.methodSpec.case ?? 'reward',
    model: spec.model,
    iterations: spec.maxIterations || '',
    threshold: spec.passThreshold || '',
    seeds: reward?.seeds || '',
    steps: Number(reward?.stepsPerMember ?? 0n) || '',
    dollars: spec.budget?.dollars ?? '',
    minutes: spec.budget?.wallTime === undefined ? '' : Number(spec.budget.wallTime.seconds) / 60,
    approve: spec.approveBeforeEvaluation,
  }
}

export function NewSession() {
  const { from } = useSearch({ from: '/new' })
  const navigate = useNavigate()
  const [form, setForm] = useState<Form>(START)
  const set = <K extends keyof Form>(key: K, value: Form[K]) => setForm((old) => ({ ...old, [key]: value }))
  const cards = useQuery({ queryKey: ['environments'], queryFn: everyEnvironment, staleTime: Number.POSITIVE_INFINITY })
  const source = useQuery({
    queryKey: ['session', `sessions/${from}`, 'spec'],
    queryFn: () => sessions.getSession({ name: `sessions/${from}` }),
    enabled: from !== undefined,
  })
  useEffect(() => {
    if (source.data?.spec !== undefined) setForm(formOf(source.data.spec))
  }, [source.data])
  const card = cards.data?.find((entry) => entry.name === form.environment)
  const methods = card?.methods ?? ['reward']
  useEffect(() => {
    if (card !== undefined && !card.methods.includes(form.method)) set('method', card.methods[0] ?? 'reward')
  }, [card, form.method])
  const [key] = useState(() => crypto.randomUUID())
  const start = useMutation({
    mutationFn: () => sessions.createSession({ spec: specOf(form), requestId: key + hash(JSON.stringify(form)) }),
    onSuccess: (session) => navigate({ to: '/sessions/$id', params: { id: session.name.split('/')[1] ?? '' } }),
  })
  const fields = start.error === null ? {} : fieldErrors(start.error)
  const wrong = (name: string) => fields[`spec.${name}`] ?? fields[name]
  const known = ['spec.intent', 'spec.environment', 'spec.model', 'spec.reward.seeds', 'spec.reward.steps_per_member']
  const options = (cards.data ?? []).map((entry) => ({ value: entry.name, label: environmentId(entry.name) }))
  const number = (value: string | number) => (typeof value === 'number' ? value : value === '' ? '' : Number(value))

  return (
    <form
      onSubmit={(event) => {
        event.preventDefault()
        start.mutate()
      }}
    >
      <Title order={1} size="h3" mb="md">
        New session
      </Title>
      <Grid gap="lg">
        <Grid.Col span={{ base: 12, md: 7 }}>
          <Stack>
            <Panel>
              <Stack>
                <Select
                  label="Environment"
                  data={options}
                  searchable
                  disabled={cards.data === undefined}
                  allowDeselect={false}
                  value={form.environment}
                  onChange={(value) => value !== null && set('environment', value)}
                  error={wrong('environment')}
                  description={card?.title ?? '\u00a0' /* a line that comes later would move the list below */}
                />
                <Textarea
                  label="Intent"
                  description="What the policy should do, in your words"
                  placeholder="run forward fast"
                  autosize
                  minRows={3}
                  maxRows={12}
                  required
                  value={form.intent}
                  onChange={(event) => set('intent', event.currentTarget.value)}
                  error={wrong('intent')}
                />
                {(card?.exampleIntents.length ?? 0) > 0 && (
                  <Box>
                    <Text size="xs" c="dimmed" mb={6}>
                      Examples for this environment
                    </Text>
                    <Group gap={6}>
                      {card?.exampleIntents.slice(0, 12).map((example) => (
                        <Chip key={example} size="xs" variant="outline" checked={form.intent === example} onChange={() => set('intent', example)}>
                          {example}
                        </Chip>
                      ))}
                    </Group>
                  </Box>
                )}
              </Stack>
            </Panel>
            <Panel>
              <Stack>
                <Box>
                  <Text size="sm" fw={500} mb={4}>
                    Method
                  </Text>
                  <SegmentedControl data={methods} value={form.method} onChange={(value) => set('method', value)} aria-label="Method" />
                  <Text size="xs" c="dimmed" mt={4}>
                    {METHODS[form.method] ?? ''}
                  </Text>
                </Box>
                <TextInput
                  label="Model"
                  description="As litellm names it, such as openai/gpt-4.1. Empty: the server's default. template/v1 is the built-in author, without a key."
                  placeholder="the server's default"
                  value={form.model}
                  onChange={(event) => set('model', event.currentTarget.value)}
                  error={wrong('model')}
                />
                <Switch
                  label="Wait for my approval before each proposal is evaluated"
                  checked={form.approve}
                  onChange={(event) => set('approve', event.currentTarget.checked)}
                />
              </Stack>
            </Panel>
            <Accordion variant="contained" radius="md">
              <Accordion.Item value="limits">
                <Accordion.Control>Limits and training</Accordion.Control>
                <Accordion.Panel>
                  <Grid>
                    <Grid.Col span={6}>
                      <NumberInput label="Iterations at most" min={1} max={1000} value={form.iterations} onChange={(value) => set('iterations', number(value))} placeholder="the method's default" />
                    </Grid.Col>
                    <Grid.Col span={6}>
                      <NumberInput label="Dollars at most" min={0} step={0.5} decimalScale={2} value={form.dollars} onChange={(value) => set('dollars', number(value))} placeholder="no limit" />
                    </Grid.Col>
                    <Grid.Col span={6}>
                      <NumberInput label="Minutes at most" min={1} value={form.minutes} onChange={(value) => set('minutes', number(value))} placeholder="no limit" />
                    </Grid.Col>
                    {form.method === 'reward' && (
                      <>
                        <Grid.Col span={6}>
                          <NumberInput label="Score to reach" min={0.01} max={1} step={0.05} value={form.threshold} onChange={(value) => set('threshold', number(value))} placeholder="0.7" />
                        </Grid.Col>
                        <Grid.Col span={6}>
                          <NumberInput label="Seeds" min={1} max={100} value={form.seeds} onChange={(value) => set('seeds', number(value))} placeholder="3" error={wrong('reward.seeds')} />
                        </Grid.Col>
                        <Grid.Col span={6}>
                          <NumberInput
                            label="Steps of each seed"
                            min={1}
                            thousandSeparator=","
                            value={form.steps}
                            onChange={(value) => set('steps', number(value))}
                            placeholder="the environment's preset"
                            error={wrong('reward.steps_per_member')}
                          />
                        </Grid.Col>
                      </>
                    )}
                  </Grid>
                </Accordion.Panel>
              </Accordion.Item>
            </Accordion>
          </Stack>
        </Grid.Col>
        <Grid.Col span={{ base: 12, md: 5 }}>
          <Stack pos="sticky" top={68}>
            <Plan form={form} />
            {start.error !== null && !Object.keys(fields).some((name) => known.includes(name)) && <Problem error={start.error} title="The session was not started" />}
            {start.error !== null && Object.keys(fields).some((name) => known.includes(name)) && (
              <Alert color="red" role="alert">
                {errorText(start.error)}
              </Alert>
            )}
            <Button type="submit" size="md" leftSection={<IconPlayerPlay size={18} />} loading={start.isPending} disabled={form.intent.trim() === ''}>
              Start the session
            </Button>
          </Stack>
        </Grid.Col>
      </Grid>
    </form>
  )
}

function Plan({ form }: { form: Form }) {
  const text = JSON.stringify(form)
  const [settled] = useDebouncedValue(text, 350)
  const plan = useQuery({
    queryKey: ['estimate', settled],
    queryFn: ({ signal }) => sessions.estimateSession({ spec: specOf(JSON.parse(settled) as Form) }, { signal }),
    enabled: form.intent.trim() !== '',
    placeholderData: keepPreviousData,
    retry: false,
  })
  const command = useMemo(() => runCommand(specOf(form)), [form])
  const estimate = plan.data
  const rounds = estimate?.spec?.maxIterations ?? 0
  return (
    <Panel
      title="Plan"
      right={estimate !== undefined && <Badge variant="light" color="gray">{estimate.usesLanguageModel ? estimate.spec?.model : 'no language model'}</Badge>}
    >
      {form.intent.trim() === '' ? (
        <Text size="sm" c="dimmed">
          Write an intent to see what the session would use.
        </Text>
      ) : plan.error !== null ? (
        <Text size="sm" c="red" className="plain" role="alert">
          {errorText(plan.error)}
        </Text>
      ) : estimate === undefined ? (
        <Text size="sm" c="dimmed">
          estimating
        </Text>
      ) : (
        <Stack gap="sm">
          <Group gap="xl">
            <Fact label="Iterations at most">{rounds}</Fact>
            <Fact label="Time of one">{duration(estimate.minutesPerIteration * 60)}</Fact>
            <Fact label="All at most">{duration(estimate.minutesPerIteration * 60 * rounds)}</Fact>
            <Fact label="Steps of one">{compact(estimate.envStepsPerIteration)}</Fact>
            <Fact label="Model calls of one">
              {estimate.mostModelCallsPerIteration > estimate.leastModelCallsPerIteration
                ? `${estimate.leastModelCallsPerIteration} to ${estimate.mostModelCallsPerIteration}`
                : estimate.modelCallsPerIteration}
            </Fact>
            <Fact label="Cost of one">
              {!estimate.usesLanguageModel
                ? 'none'
                : estimate.dollarsPerIteration === undefined
                  ? 'unknown price'
                  : estimate.mostDollarsPerIteration !== undefined
                    ? `$${(estimate.leastDollarsPerIteration ?? 0).toFixed(2)} to $${estimate.mostDollarsPerIteration.toFixed(2)}`
                    : `$${estimate.dollarsPerIteration.toFixed(2)}`}
            </Fact>
            <Fact label="Goal">{estimate.goal}</Fact>
          </Group>
          <Text size="xs" c="dimmed">
            {`An episode has at most ${estimate.maxEpisodeSteps.toLocaleString('en')} steps and ${estimate.terminatesWhenUnhealthy ? 'ends' : 'does not end'} in an unhealthy state.`}
          </Text>
          {estimate.note !== '' && (
            <Alert icon={<IconInfoCircle size={16} />} p="xs">
              <Text size="xs" className="plain">
                {estimate.note}
              </Text>
            </Alert>
          )}
        </Stack>
      )}
      {form.intent.trim() !== '' && (
        <>
          <Text size="xs" c="dimmed" mt="md" mb={4}>
            The same in a terminal
          </Text>
          <Command text={command} />
        </>
      )}
    </Panel>
  )
}

/** A short digest: a changed form is another request, a repeated click the same. */
function hash(text: string): string {
  let value = 0
  for (let index = 0; index < text.length; index += 1) value = (Math.imul(value, 31) + text.charCodeAt(index)) | 0
  return `-${(value >>> 0).toString(36)}`
}
