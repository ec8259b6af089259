// The settings that sessions and benchmarks share: method, model, limits, training.
import { Accordion, Box, Grid, NumberInput, SegmentedControl, Select, Stack, Switch, Text, Textarea, TextInput } from '@mantine/core'

import { Panel } from '../../components/basics'
import type { Form } from './form'
import { FURTHER_EXAMPLES } from './further'
import type { SetField } from './FormPage'

const METHODS: Record<string, string> = {
  reward: 'An author writes a reward and a judge; PPO trains on it.',
  parameters: 'Searches the numbers of a small policy for a high return.',
  code: 'A model writes the policy in Python.',
  program: 'Searches programs of a small language.',
}

type Props = {
  form: Form
  set: SetField
  methods: string[]
  /** The server's objection to a field of the spec, if it has one. */
  wrong: (field: string) => string | undefined
  /** What is wrong with the further settings. */
  problem: string | undefined
}

const number = (value: string | number) => (typeof value === 'number' ? value : value === '' ? '' : Number(value))

export function Settings({ form, set, methods, wrong, problem }: Props) {
  const count = form.further.split('\n').filter((line) => line.trim() !== '').length
  return (
    <>
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
                  <Grid.Col span={6}>
                    <NumberInput
                      label="Patience"
                      description="Checkpoints without a rise after which a training ends"
                      min={1}
                      max={100}
                      value={form.patience}
                      onChange={(value) => set('patience', number(value))}
                      placeholder="2"
                      error={wrong('reward.patience')}
                    />
                  </Grid.Col>
                  <Grid.Col span={6}>
                    <Select
                      label="Continue from the parent's policies"
                      description="Otherwise from random weights"
                      data={[
                        { value: 'auto', label: 'the author decides' },
                        { value: 'never', label: 'never' },
                        { value: 'always', label: 'always' },
                      ]}
                      value={form.fromParent}
                      onChange={(value) => set('fromParent', value ?? 'auto')}
                      allowDeselect={false}
                    />
                  </Grid.Col>
                </>
                )}
              </Grid>
            </Accordion.Panel>
          </Accordion.Item>
          <Accordion.Item value="further">
            <Accordion.Control>{count === 0 ? 'Further settings' : `Further settings: ${count}`}</Accordion.Control>
            <Accordion.Panel>
              <Textarea
                label="Settings without a field"
                description={`One a line, by their names in the API: ${FURTHER_EXAMPLES.join(', ')}`}
                autosize
                minRows={3}
                maxRows={16}
                className="plain"
                value={form.further}
                onChange={(event) => set('further', event.currentTarget.value)}
                error={problem}
              />
            </Accordion.Panel>
          </Accordion.Item>
        </Accordion>
    </>
  )
}
