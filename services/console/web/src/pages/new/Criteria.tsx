// What the intent means, as criteria that a model proposes and a person ticks and edits.
import { ActionIcon, Alert, Badge, Box, Button, Checkbox, Group, Stack, Text, Textarea, TextInput, Tooltip } from '@mantine/core'
import { IconPlus, IconSparkles, IconTrash } from '@tabler/icons-react'
import { useMutation } from '@tanstack/react-query'
import { useState } from 'react'

import { errorText, intents } from '../../api/clients'
import { Panel } from '../../components/basics'
import { dollars } from '../../lib/format'
import type { Criterion, Form } from './form'

const MOST = 32
const nextKey = (criteria: Criterion[]) => Math.max(0, ...criteria.map(({ key }) => key)) + 1

export function Criteria({ form, onChange }: { form: Form; onChange: (criteria: Criterion[]) => void }) {
  const { criteria } = form
  const intent = form.intent.trim()
  const [asked, setAsked] = useState('')
  const elicit = useMutation({
    mutationFn: () => intents.elicit({ intent, environment: form.environment, model: String(form.values.model ?? '').trim() }),
    onSuccess: (answer) => {
      setAsked(`${form.environment} ${intent}`)
      const own = criteria.filter((entry) => entry.own)
      const proposed = answer.criteria.map(({ title, description, category, defaultOn }, index) => ({ key: nextKey(criteria) + index, title, description, category, on: defaultOn }))
      onChange([...proposed, ...own].slice(0, MOST))
    },
  })
  const change = (key: number, part: Partial<Criterion>) => onChange(criteria.map((entry) => (entry.key === key ? { ...entry, ...part } : entry)))
  const on = criteria.filter((entry) => entry.on).length
  const stale = asked !== '' && asked !== `${form.environment} ${intent}`
  return (
    <Panel
      title="Criteria"
      right={
        <Group gap="xs">
          {criteria.length > 0 && (
            <Text size="xs" c="dimmed" className="numbers">{`${on} of ${criteria.length} count`}</Text>
          )}
          <Button size="compact-sm" variant="light" leftSection={<IconSparkles size={15} />} loading={elicit.isPending} disabled={intent === ''} onClick={() => elicit.mutate()}>
            {criteria.length > 0 ? 'Propose again' : 'Propose criteria'}
          </Button>
        </Group>
      }
    >
      <Stack gap="sm">
        {criteria.length === 0 && (
          <Text size="sm" c="dimmed">
            Without criteria the judge's author decides what to measure. The model proposes some that you can tick and edit.
          </Text>
        )}
        {elicit.error !== null && (
          <Text size="sm" c="red" className="plain" role="alert">
            {errorText(elicit.error)}
          </Text>
        )}
        {stale && (
          <Text size="xs" c="dimmed">
            The intent or the environment has changed since these were proposed.
          </Text>
        )}
        {criteria.map((entry) => (
          <Group key={entry.key} gap="sm" wrap="nowrap" align="flex-start" role="group" aria-label={entry.title || 'new criterion'}>
            <Checkbox mt={8} checked={entry.on} onChange={(event) => change(entry.key, { on: event.currentTarget.checked })} aria-label={`Use ${entry.title || 'new criterion'}`} />
            <Box flex={1} miw={0}>
              <TextInput
                aria-label="Title"
                variant="unstyled"
                size="sm"
                fw={600}
                maxLength={200}
                placeholder="title"
                value={entry.title}
                onChange={(event) => change(entry.key, { title: event.currentTarget.value })}
                rightSectionWidth={110}
                rightSection={
                  entry.category !== '' && (
                    <Badge size="xs" variant="light" color="gray">
                      {entry.category}
                    </Badge>
                  )
                }
              />
              <Textarea
                aria-label={`What ${entry.title || 'it'} measures`}
                size="xs"
                autosize
                minRows={1}
                maxLength={2000}
                placeholder="what is measured, with its thresholds"
                value={entry.description}
                onChange={(event) => change(entry.key, { description: event.currentTarget.value })}
              />
            </Box>
            <Tooltip label="remove">
              <ActionIcon mt={4} variant="subtle" color="gray" aria-label={`Remove ${entry.title || 'new criterion'}`} onClick={() => onChange(criteria.filter((other) => other.key !== entry.key))}>
                <IconTrash size={15} />
              </ActionIcon>
            </Tooltip>
          </Group>
        ))}
        <Group justify="space-between">
          <Button
            size="compact-xs"
            variant="subtle"
            leftSection={<IconPlus size={14} />}
            disabled={criteria.length >= MOST}
            onClick={() => onChange([...criteria, { key: nextKey(criteria), title: '', description: '', category: '', on: true, own: true }])}
          >
            Add your own
          </Button>
          {elicit.data?.cost !== undefined && Number(elicit.data.cost.requests) > 0 && (
            <Text size="xs" c="dimmed" className="numbers">{`this call: ${dollars(elicit.data.cost)}`}</Text>
          )}
        </Group>
        {(elicit.data?.questions.length ?? 0) > 0 && !stale && (
          <Alert p="xs" title="What the intent leaves open">
            <Stack gap={4}>
              {elicit.data?.questions.map((question) => (
                <Text key={question} size="sm" className="plain">
                  {question}
                </Text>
              ))}
            </Stack>
          </Alert>
        )}
      </Stack>
    </Panel>
  )
}
