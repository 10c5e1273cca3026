import { connect } from 'node:net'

/*
 * Spellings of the path of a paid route, /weather/:city. Some routers treat these spellings as the same path, or can be configured to do so. In 2026,
 * there were six security advisories about a middleware for Fastify, because it served such a spelling for free.
 */

/** Spellings that a lenient router treats as /weather/lisbon. */
export const spellings = [
  '/weather/lisbon',
  '/WEATHER/lisbon',
  '/weather/lisbon/',
  '//weather/lisbon',
  '/weather//lisbon',
  '//weather//lisbon//',
  '/%77eather/lisbon',
  '/weather/%6cisbon',
  '/weather/lisbon;jsessionid=1',
  '/weather/lisbon;/../free',
  '/weather/lisbon?x=1',
  '/weather/lisbon;x?y',
]

/** Spellings without a city, or with more than one possible path. */
export const unclearSpellings = [
  '/weather/./lisbon',
  '/free/../weather/lisbon',
  '/weather%2flisbon',
  '/weather/lis%2fbon',
  '/weather/%2e%2e',
  '/weather\\lisbon',
  'http://free.example/weather/lisbon',
  '*',
]

/** Sends a path unchanged. Doesn't use `fetch`, which would normalize the path. */
export async function askLiterally(url: string, path: string, headers: Record<string, string> = {}) {
  const { hostname, port } = new URL(url)
  const socket = connect(Number(port), hostname)
  const lines = Object.entries({ host: `${hostname}:${port}`, connection: 'close', ...headers })
  socket.write(
    `GET ${path} HTTP/1.1\r\n${lines.map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n`,
  )
  let text = ''
  for await (const chunk of socket) text += String(chunk)
  const [head = '', body = ''] = text.split('\r\n\r\n')
  return { status: Number(head.split(' ')[1]), body: body.replace(/^[\da-f]+\r\n|\r\n0$/g, '') }
}
