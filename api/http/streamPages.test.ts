import { setImmediate as nextTurn } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { streamPages, type TextPage } from './streamPages.ts'

const pages = ['a', '', '', 'b', 'c', 'd']

function open(fails = -1) {
  /** Events in their order: pages that were requested, queries that were sent, and pages that were formatted. */
  const log: string[] = []
  const format = (text: string) => () => {
    log.push(`format ${text}`)
    return text
  }
  const readPage = async (after: number): Promise<TextPage<number>> => {
    const index = after + 1
    log.push(`read ${index}`)
    if (index === fails) throw new Error('gone')
    // Like the database driver, this reader sends a query one turn of the event loop after the query was made.
    await 1
    await nextTurn()
    log.push(`query ${index}`)
    return { write: format(pages[index] ?? ''), next: index + 1 < pages.length ? index : null }
  }
  return { log, stream: streamPages({ write: format('a'), next: 0 }, readPage) }
}

test('default: writes all pages in order, and skips empty ones', async () => {
  expect(await new Response(open().stream).text()).toBe('abcd')
})

test('behavior: sends the query for the next page before formatting a page', async () => {
  const { log, stream } = open()
  await new Response(stream).text()
  const at = (event: string) => log.indexOf(event)
  expect(at('query 1')).toBeLessThan(at('format a'))
  expect(at('query 5')).toBeLessThan(at('format c'))
})

test('behavior: holds at most two pages for a client that does not read', async () => {
  const { log, stream } = open()
  const reader = stream.getReader()
  await reader.read()
  for (let turn = 0; turn < 100; turn++) await nextTurn()
  // Page b is formatted and waits for the client; c has been read ahead.
  expect([log.at(-1), log.filter((event) => event.startsWith('read'))]).toEqual([
    'format b',
    ['read 1', 'read 2', 'read 3', 'read 4'],
  ])
  await reader.cancel()
})

test('error: cuts the connection if a page can’t be read', async () => {
  await expect(new Response(open(4).stream).text()).rejects.toThrow('gone')
})
