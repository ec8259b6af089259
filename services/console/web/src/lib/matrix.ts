// The flat parameters of a linear policy as its matrix.

export type Matrix = { rows: number[][]; bias: number[] | null }

/**
 * The matrix of outputs by observations, row by row in the vector, and then the bias; null if the length does not fit.
 *
 * @param outputs number of actions, or of their components.
 */
export function matrixOf(values: readonly number[], outputs: number, observations: number): Matrix | null {
  const weights = outputs * observations
  if (weights === 0 || (values.length !== weights && values.length !== weights + outputs)) return null
  const rows = Array.from({ length: outputs }, (_, row) => values.slice(row * observations, (row + 1) * observations))
  return { rows, bias: values.length > weights ? values.slice(weights) : null }
}
