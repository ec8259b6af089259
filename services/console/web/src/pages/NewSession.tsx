// A new session: what to learn, where and how, and the plan before it starts.
import { Alert, Badge, Box, Button, Chip, Group, Select, Skeleton, Stack, Text, Textarea } from '@mantine/core'
import { useDebouncedValue } from '@mantine/hooks'
import { IconDownload, IconInfoCircle } from '@tabler/icons-react'
import { keepPreviousData, useMutation, useQuery } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { useEffect, useMemo } from 'react'

import { errorText, fieldErrors, sessions } from '../api/clients'
import { useEnvironments } from '../api/environments'
import { Command, Fact, Panel, Problem } from '../components/basics'
import { FIELDS, pathOf } from '../lib/arguments'
import { criteriaFile, runCommand } from '../lib/command'
import { save } from '../lib/csv'
import { compact, duration, environmentId } from '../lib/format'
import { Criteria } from './new/Criteria'
import type { Form } from './new/form'
import { formOf, readForm, specOf, START } from './new/form'
import { FormPage, useForm } from './new/FormPage'
import { Settings } from './new/Settings'

/** An empty form, or one with the settings of another session. */
export function NewSession() {
  const { from } = useSearch({ from: '/new' })
  const source = useQuery({
    queryKey: ['session', `sessions/${from}`, 'spec'],
    queryFn: () => sessions.getSession({ name: `sessions/${from}` }),
    enabled: from !== undefined,
  })
  const first = useMemo(() => (source.data?.spec === undefined ? START : formOf(source.data.spec)), [source.data])
  if (source.error !== null) return <Problem error={source.error} title="The settings of the other session cannot be read" />
  if (from !== undefined && source.data === undefined) return <Skeleton h={320} radius="md" />
  return <Fields key={from ?? ''} name={from === undefined ? 'session' : `session/${from}`} first={first} />
}

function Fields({ name, first }: { name: string; first: Form }) {
  const navigate = useNavigate()
  const { form, set, requestId, drop } = useForm(name, first)
  const cards = useEnvironments()
  const card = cards.data?.find((entry) => entry.name === form.environment)
  const methods = card?.methods ?? ['reward']
  useEffect(() => {
    if (card !== undefined && !card.methods.includes(form.method)) set('method', card.methods[0] ?? 'reward')
  }, [card, form.method])
  const start = useMutation({
    mutationFn: () => sessions.createSession({ spec: specOf(form), requestId: requestId(form) }),
    onSuccess: async (session) => {
      await navigate({ to: '/sessions/$id', params: { id: session.name.split('/')[1] ?? '' } })
      drop?.()
    },
  })
  const fields = start.error === null ? {} : fieldErrors(start.error)
  const wrong = (name: string) => fields[`spec.${name}`] ?? fields[name]
  const known = ['intent', 'environment', ...FIELDS.map(pathOf)].map((name) => `spec.${name}`)
  const { problem } = useMemo(() => readForm(form), [form])
  const options = (cards.data ?? []).map((entry) => ({ value: entry.name, label: environmentId(entry.name) }))

  return (
    <FormPage
      title="New session"
      action="Start the session"
      pending={start.isPending}
      disabled={form.intent.trim() === '' || problem !== undefined}
      onStart={() => start.mutate()}
      onClear={drop}
      fields={
        <>
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
          {form.method === 'reward' && <Criteria form={form} onChange={(criteria) => set('criteria', criteria)} />}
          <Settings form={form} set={set} methods={methods} wrong={wrong} problem={problem} />
        </>
      }
      beside={
        <>
          <Plan form={form} />
          {start.error !== null && !Object.keys(fields).some((name) => known.includes(name)) && <Problem error={start.error} title="The session was not started" />}
          {start.error !== null && Object.keys(fields).some((name) => known.includes(name)) && (
            <Alert color="red" role="alert">
              {errorText(start.error)}
            </Alert>
          )}
        </>
      }
    />
  )
}

function Plan({ form }: { form: Form }) {
  const text = JSON.stringify(form)
  const [settled] = useDebouncedValue(text, 350)
  const { spec } = useMemo(() => readForm(form), [form])
  const plan = useQuery({
    queryKey: ['estimate', settled],
    queryFn: ({ signal }) => sessions.estimateSession({ spec: specOf(JSON.parse(settled) as Form) }, { signal }),
    enabled: form.intent.trim() !== '' && spec !== undefined,
    placeholderData: keepPreviousData,
    retry: false,
  })
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
          <Group gap="xl" className="facts">
            <Fact label="Iterations at most">{rounds}</Fact>
            <Fact label="Time of one">{duration(estimate.minutesPerIteration * 60)}</Fact>
            <Fact label="All at most">{duration(Math.max(estimate.minutesPerIteration, estimate.mostMinutesPerIteration) * 60 * rounds)}</Fact>
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
          {estimate.measured !== '' && (
            <Text size="xs" c="dimmed" className="plain">
              {estimate.measured}
            </Text>
          )}
          {estimate.optionsOfAuthor.length > 0 && (
            <Text size="xs" c="dimmed">
              {`The author may change ${estimate.optionsOfAuthor.join(', ')}.`}
            </Text>
          )}
          {estimate.note !== '' && (
            <Alert icon={<IconInfoCircle size={16} />} p="xs">
              <Text size="xs" className="plain">
                {estimate.note}
              </Text>
            </Alert>
          )}
        </Stack>
      )}
      {form.intent.trim() !== '' && spec !== undefined && (
        <>
          <Text size="xs" c="dimmed" mt="md" mb={4}>
            The same in a terminal
          </Text>
          <Command text={runCommand(spec)} />
          {spec.criteria.length > 0 && (
            <Button mt={6} size="compact-xs" variant="subtle" leftSection={<IconDownload size={14} />} onClick={() => save('criteria.json', criteriaFile(spec), 'application/json')}>
              save criteria.json
            </Button>
          )}
        </>
      )}
    </Panel>
  )
}
