// The settings that sessions and benchmarks share: the method, and a field for each argument.
import { Accordion, Box, Divider, Grid, NumberInput, SegmentedControl, Select, Stack, Switch, Text, Textarea, TextInput } from '@mantine/core'

import { Panel } from '../../components/basics'
import { type Argument, FIELDS, fits, labelOf, pathOf, type Value } from '../../lib/arguments'
import type { Form } from './form'
import { FURTHER_EXAMPLES } from './further'
import type { SetField } from './FormPage'

const METHODS: Record<string, string> = {
  reward: 'An author writes a reward and a judge; PPO trains on it.',
  parameters: 'Searches the numbers of a small policy for a high return.',
  code: 'A model writes the policy in Python.',
  program: 'Searches programs of a small language.',
}
/** Arguments that are always shown. */
const FIRST = ['model', 'approve']
const GROUPS = ['models', 'iterations', 'training', 'judgment', 'limits']

type Props = {
  form: Form
  set: SetField
  methods: string[]
  /** The server's objection to a field of the spec, if it has one. */
  wrong: (field: string) => string | undefined
  /** What is wrong with the further settings. */
  problem: string | undefined
}

type FieldProps = { argument: Argument; value: Value | undefined; error: string | undefined; onChange: (value: Value) => void }

function Field({ argument, value, error, onChange }: FieldProps) {
  const common = { label: labelOf(argument), description: argument.help.replaceAll('`', ''), error }
  const range = { ...(argument.minimum !== null && { min: argument.minimum }), ...(argument.maximum !== null && { max: argument.maximum }) }
  if (argument.kind === 'switch' && argument.unset === 'off') return <Switch {...common} checked={value === true} onChange={(event) => onChange(event.currentTarget.checked)} />
  if (argument.kind === 'switch') {
    const chosen = value === undefined || value === '' ? null : value === true ? 'on' : 'off'
    return <Select {...common} clearable placeholder={argument.unset} data={['on', 'off']} value={chosen} onChange={(word) => onChange(word === null ? '' : word === 'on')} />
  }
  if (argument.choices.length > 0) {
    return <Select {...common} clearable placeholder={argument.unset} data={argument.choices} value={value === undefined || value === '' ? null : String(value)} onChange={(word) => onChange(word ?? '')} />
  }
  if (argument.kind === 'text' || argument.kind === 'roles') {
    return <TextInput {...common} placeholder={argument.unset} value={String(value ?? '')} onChange={(event) => onChange(event.currentTarget.value)} />
  }
  return <NumberInput {...common} {...range} thousandSeparator="," placeholder={argument.unset} value={typeof value === 'number' ? value : ''} onChange={(number) => onChange(number === '' ? '' : Number(number))} />
}

export function Settings({ form, set, methods, wrong, problem }: Props) {
  const count = form.further.split('\n').filter((line) => line.trim() !== '').length
  const shown = FIELDS.filter((argument) => fits(argument, form.method))
  const field = (argument: Argument) => (
    <Field
      argument={argument}
      value={form.values[argument.name]}
      error={wrong(pathOf(argument))}
      onChange={(value) => set('values', { ...form.values, [argument.name]: value })}
    />
  )
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
          {shown.filter(({ name }) => FIRST.includes(name)).map((argument) => (
            <Box key={argument.name}>{field(argument)}</Box>
          ))}
        </Stack>
      </Panel>
      <Accordion variant="contained" radius="md">
        <Accordion.Item value="limits">
          <Accordion.Control>Limits and training</Accordion.Control>
          <Accordion.Panel>
            {GROUPS.map((group) => (
              <Box key={group} mb="md">
                <Divider label={group} labelPosition="left" mb="xs" />
                <Grid>
                  {shown.filter((argument) => argument.group === group && !FIRST.includes(argument.name)).map((argument) => (
                    <Grid.Col key={argument.name} span={6}>
                      {field(argument)}
                    </Grid.Col>
                  ))}
                </Grid>
              </Box>
            ))}
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
