// The policy's parameters as a picture: red is negative, blue positive, by the largest absolute value.
import { Box, ScrollArea, Table, Text } from '@mantine/core'

import { useEnvironments } from '../../api/environments'
import { Panel } from '../../components/basics'
import type { Session } from '../../gen/dressage/v1/session_pb'
import { short } from '../../lib/format'
import { matrixOf } from '../../lib/matrix'

const MOST = 4096
const MOST_COLUMNS = 64

export function Parameters({ session, values }: { session: Session; values: number[] }) {
  const cards = useEnvironments()
  const card = cards.data?.find((entry) => entry.name === session.spec?.environment)
  const kind = session.spec?.methodSpec.case === 'parameters' ? session.spec.methodSpec.value.policy : ''
  const linear = kind === 'linear' || (kind === '' && !(card !== undefined && card.numActions > 0 && card.numObservations > 0))
  const outputs = card === undefined ? 0 : card.numActions || card.actions.length
  const matrix = linear && card !== undefined && card.observationSize <= MOST_COLUMNS ? matrixOf(values, outputs, card.observationSize) : null
  const most = Math.max(...values.map(Math.abs), 1e-12)
  const shade = (value: number) => ({ backgroundColor: value < 0 ? `rgba(214, 69, 65, ${(0.75 * -value) / most})` : `rgba(25, 118, 210, ${(0.75 * value) / most})` })
  const summary = `${values.length} parameters between ${short(Math.min(...values))} and ${short(Math.max(...values))}`
  return (
    <Panel title="Parameters" pad="sm" right={<Text size="xs" c="dimmed">red: negative, blue: positive</Text>}>
      {matrix === null ? (
        <Box className="heat" role="img" aria-label={summary}>
          {values.slice(0, MOST).map((value, index) => (
            <span key={index} title={`${index}: ${short(value, 5)}`} style={shade(value)} />
          ))}
        </Box>
      ) : (
        <ScrollArea type="auto" viewportProps={{ tabIndex: 0, 'aria-label': 'Weights of the policy', role: 'region' }}>
          <Table fz="xs" withTableBorder withColumnBorders w="auto" verticalSpacing={4} aria-label={summary}>
            <Table.Thead>
              <Table.Tr>
                <Table.Th>action</Table.Th>
                {matrix.rows[0]!.map((_, index) => (
                  <Table.Th key={index} ta="right">{`o${index}`}</Table.Th>
                ))}
                {matrix.bias !== null && <Table.Th ta="right">bias</Table.Th>}
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {matrix.rows.map((row, action) => (
                <Table.Tr key={action}>
                  <Table.Th>{(card?.numActions === 0 && card.actions[action]?.name) || action}</Table.Th>
                  {[...row, ...(matrix.bias === null ? [] : [matrix.bias[action]!])].map((value, index) => (
                    <Table.Td key={index} ta="right" className="numbers" style={shade(value)}>
                      {short(value)}
                    </Table.Td>
                  ))}
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </ScrollArea>
      )}
    </Panel>
  )
}
