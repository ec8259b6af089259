// A share with its 95 % interval, as text and as a bar.
import { Box, Text } from '@mantine/core'

export function Rate({ value, low, high }: { value: number | undefined; low: number | undefined; high: number | undefined }) {
  if (value === undefined) return <Text size="sm" c="dimmed">–</Text>
  const percent = (x: number) => `${Math.round(x * 100)} %`
  return (
    <Box miw={150}>
      <Text size="sm" className="numbers" fw={550}>
        {percent(value)}
        {low !== undefined && high !== undefined && <Text span size="xs" c="dimmed" fw={400}>{`  ${Math.round(low * 100)} to ${percent(high)}`}</Text>}
      </Text>
      <Box className="interval" aria-hidden>
        {low !== undefined && high !== undefined && <Box className="interval-range" left={`${low * 100}%`} right={`${100 - high * 100}%`} bg="teal" />}
        <Box className="interval-point" left={`${value * 100}%`} bg="teal" />
      </Box>
    </Box>
  )
}
