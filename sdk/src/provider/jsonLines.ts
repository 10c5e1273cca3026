import { GatewayError } from './errors.ts'

/**
 * Yields the objects of a JSON Lines response while they arrive. If the iteration ends early, the connection is closed.
 *
 * @throws the connection's error. Also throws {@link GatewayError} `network_error` if the last line is incomplete.
 */
export async function* readJsonLines<Line>(response: Response): AsyncGenerator<Line, void, undefined> {
  if (!response.body) return
  // Safari's streams can't be iterated over.
  const reader = response.body.getReader()
  const decoder = new TextDecoder()
  let rest = ''
  try {
    for (let read = await reader.read(); !read.done; read = await reader.read()) {
      const lines = (rest + decoder.decode(read.value, { stream: true })).split('\n')
      rest = lines.pop() ?? ''
      for (const line of lines) yield JSON.parse(line) as Line
    }
    if (rest !== '') throw new GatewayError('network_error', 'The connection ended within a line')
  } finally {
    // Closes the connection if it is still open. Ignore a failure.
    reader.cancel().catch(() => {})
  }
}
