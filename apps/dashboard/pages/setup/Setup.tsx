import type { ComponentChildren } from 'preact'
import { useContext } from 'preact/hooks'
import { EndContext, type Session, useSession } from '../../gateway/session.ts'
import { type Polled, usePolled } from '../../gateway/usePolled.ts'
import { type Action, useActions } from '../../parts/actions.tsx'
import { type Column, Table } from '../../parts/Table.tsx'
import { Facts } from '../../parts/ui.tsx'
import { Empty, View } from '../../parts/View.tsx'

const pages = [
  ['endpoints', 'Endpoints'],
  ['wallets', 'Wallets'],
  ['keys', 'API keys'],
  ['upstream', 'Without code'],
  ['hook', 'Acceptance hook'],
  ['webhooks', 'Webhooks'],
  ['provider', 'Provider'],
  ['history', 'History'],
] as const

type SetupPage = (typeof pages)[number][0]

function titleOf(page: SetupPage): string {
  return pages.find(([name]) => name === page)?.[1] ?? ''
}

/** Shows one kind of item that a provider has registered. */
export function SetupView<T>(props: {
  page: SetupPage
  /** Title of the item. Default: the page's title. */
  title?: string
  actions?: ComponentChildren
  polled: Polled<T>
  children: (data: T) => ComponentChildren
}) {
  const { page, title = titleOf(page), children, actions, ...view } = props
  const isReading = useSession().scope === 'read'
  const note = isReading && (
    <p class="box good">Your API key can only read. Sign in with a key of full scope to change anything.</p>
  )
  return (
    <View title={title} below={note} actions={!isReading && actions} {...view}>
      {(data) => (
        <fieldset class="bare" disabled={isReading}>
          {children(data)}
        </fieldset>
      )}
    </View>
  )
}

/** The viewer's session, and the function that ends it. */
export type Desk = Session & { end: (reason: string) => void }

/** A kind of item that a provider registers: how it is read and shown, and which actions are possible. */
export type Resource<Data, Item> = {
  page: SetupPage
  read: (desk: Desk, signal: AbortSignal) => Promise<Data>
  everyMs?: number
  /** The action next to the title, which registers another item. */
  add?: (data: Data, desk: Desk) => Action
  items: (data: Data) => Item[]
  empty?: { title: string; text: ComponentChildren }
  keyOf: (item: Item) => string
  isOff?: (item: Item) => boolean
  /** The columns of a table; for a single item, its facts. */
  columns?: (data: Data, desk: Desk) => Column<Item>[]
  facts?: (item: Item, data: Data) => Record<string, ComponentChildren>
  actions: (item: Item, data: Data, desk: Desk) => Action[]
}

export function ResourcePage<Data, Item>({ resource }: { resource: Resource<Data, Item> }) {
  const { page, read, everyMs, add, items, empty, keyOf, isOff, columns, facts, actions } = resource
  const desk = { ...useSession(), end: useContext(EndContext) }
  const polled = usePolled((signal) => read(desk, signal), page, everyMs)
  const { notice, buttons, dialog } = useActions(polled.refresh)
  const head = polled.data !== undefined && add !== undefined && buttons([add(polled.data, desk)])
  return (
    <SetupView page={page} actions={head} polled={polled}>
      {(data) => {
        const shown = items(data)
        const buttonsOf = (item: Item) => buttons(actions(item, data, desk), 'quiet')
        return (
          <>
            {notice}
            {shown.length === 0 && empty && <Empty title={empty.title}>{empty.text}</Empty>}
            {columns && shown.length > 0 && (
              <section class="panel">
                <Table
                  label={titleOf(page)}
                  rows={shown}
                  keyOf={keyOf}
                  isOff={isOff}
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
