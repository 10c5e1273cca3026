import { expect, test } from 'vitest'
import { streamPages, type TextPage } from './streamPages.ts'

const pages = ['a', '', '', 'b', 'c', 'd']

function open(fails = -1) {
  const read: number[] = []
  const readPage = async (after: number): Promise<TextPage<number>> => {
    const index = after + 1
    read.push(index)
    if (index === fails) throw new Error('gone')
    return { text: pages[index] ?? '', next: index + 1 < pages.length ? index : null }
  }
  return { read, stream: streamPages({ text: 'a', next: 0 }, readPage) }
}

test('default: all pages in order, past those that hold nothing', async () => {
  expect(await new Response(open().stream).text()).toBe('abcd')
})

test('behavior: a client that does not read holds two pages', async () => {
  const { read, stream } = open()
  const reader = stream.getReader()
  await reader.read()
  await new Promise((resolve) => setImmediate(resolve))
  // b is written and waits for the client, c is read ahead.
  expect(read).toEqual([1, 2, 3, 4])
  await reader.cancel()
})

test('error: a page that can not be read cuts the answer', async () => {
  await expect(new Response(open(4).stream).text()).rejects.toThrow('gone')
})
