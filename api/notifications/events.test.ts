import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { webhookEvents } from './events.ts'

test('behavior: docs/webhooks.md describes exactly the events that exist', () => {
  const text = readFileSync(new URL('../../docs/webhooks.md', import.meta.url), 'utf8')
  const [table = ''] = /^\| event .*?\n\n/ms.exec(text) ?? []
  const first = table.split('\n').map((line) => line.split('|')[1] ?? '')
  const described = first.flatMap((cell) =>
    [...cell.matchAll(/`([a-z]+\.[a-z]+)`/g)].map(([, event]) => event),
  )
  expect(described.toSorted()).toEqual([...webhookEvents].toSorted())
})
