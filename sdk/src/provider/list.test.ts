import { expect, test } from 'vitest'
import { collect } from '../../test/collect.ts'
import { createList } from './list.ts'

type Page = { items: number[]; cursor: string | null }

function setUp(pages: Record<string, Page>) {
  const asked: string[] = []
  const list = createList<number, Page>(
    { items: (page) => page.items, next: (page) => page.cursor },
    async (cursor = 'start') => {
      asked.push(cursor)
      return pages[cursor] as Page
    },
  )
  return { asked, list }
}

const three = {
  start: { items: [1, 2], cursor: 'b' },
  // A page may be empty and still be followed by another page.
  b: { items: [], cursor: 'c' },
  c: { items: [3], cursor: null },
}

test('yields the items of all pages one by one', async () => {
  const { asked, list } = setUp(three)
  expect(asked).toEqual([])
  expect(await collect(list)).toEqual([1, 2, 3])
  expect(asked).toEqual(['start', 'b', 'c'])
})

test('requests a page only when it is needed, and no page after `break`', async () => {
  const { asked, list } = setUp(three)
  for await (const item of list) {
    expect(asked).toEqual(['start'])
    if (item === 2) break
  }
  expect(asked).toEqual(['start'])
})

test('starts from the beginning with each iteration', async () => {
  const { list } = setUp(three)
  expect([await collect(list), await collect(list)]).toEqual([
    [1, 2, 3],
    [1, 2, 3],
  ])
})

test('reads one page, from any cursor', async () => {
  const { list } = setUp(three)
  expect(await list.page()).toBe(three.start)
  expect(await list.page('c')).toBe(three.c)
  expect(await list.page(null)).toBe(three.start)
  expect(await collect(list.pages())).toEqual(Object.values(three))
})

test('ends if a page’s next cursor equals the page’s own cursor', async () => {
  const { list } = setUp({ start: { items: [1], cursor: 'b' }, b: { items: [2], cursor: 'b' } })
  expect(await collect(list)).toEqual([1, 2])
})
