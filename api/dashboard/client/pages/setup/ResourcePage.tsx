import type { ComponentChildren } from 'preact'
import { useContext } from 'preact/hooks'
import { type Act, useActs } from '../../parts/acts.tsx'
import { type Column, Facts, Table } from '../../parts/bits.tsx'
import { type SetupPage, SetupView, titleOf } from '../../parts/Setup.tsx'
import { Empty } from '../../parts/View.tsx'
import { EndContext, type Session, useSession } from '../../session.ts'
import { usePolled } from '../../usePolled.ts'

/** The session of whoever looks, and how to end it. */
export type Desk = Session & { end: (reason: string) => void }

/** A kind of thing that a provider registers: what is read and shown of it, and what can be done. */
export type Resource<Data, Item> = {
  page: SetupPage
  read: (desk: Desk, signal: AbortSignal) => Promise<Data>
  everyMs?: number
  /** The act beside the title, which registers one more. */
  add?: (data: Data, desk: Desk) => Act
  items: (data: Data) => Item[]
  empty?: { title: string; text: ComponentChildren }
  keyOf: (item: Item) => string
  isOff?: (item: Item) => boolean
  /** The columns of a table, or for a single thing, its facts. */
  columns?: (data: Data, desk: Desk) => Column<Item>[]
  facts?: (item: Item, data: Data) => Record<string, ComponentChildren>
  acts: (item: Item, data: Data, desk: Desk) => Act[]
}

export function ResourcePage<Data, Item>({ resource }: { resource: Resource<Data, Item> }) {
  const { page, read, everyMs, add, items, empty, keyOf, isOff, columns, facts, acts } = resource
  const desk = { ...useSession(), end: useContext(EndContext) }
  const polled = usePolled((signal) => read(desk, signal), page, everyMs)
  const { notice, buttons, dialog } = useActs(polled.refresh)
  const head = polled.data !== undefined && add !== undefined && buttons([add(polled.data, desk)])
  return (
    <SetupView page={page} actions={head} polled={polled}>
      {(data) => {
        const shown = items(data)
        const buttonsOf = (item: Item) => buttons(acts(item, data, desk), 'quiet')
        return (
          <>
            {notice}
            {shown.length === 0 && empty && (
              <Empty title={empty.title}>
                <p>{empty.text}</p>
              </Empty>
            )}
            {columns && shown.length > 0 && (
              <section class="panel">
                <Table
                  label={titleOf(page)}
                  rows={shown}
                  keyOf={keyOf}
                  {...(isOff && { isOff })}
                  columns={[...columns(data, desk), ['', buttonsOf, 'actions']]}
                />
              </section>
            )}
            {facts &&
              shown.map((item) => (
                <section key={keyOf(item)} class="panel">
                  <Facts of={facts(item, data)} />
                  <div class="buttons">{buttonsOf(item)}</div>
                </section>
              ))}
            {dialog}
          </>
        )
      }}
    </SetupView>
  )
}
