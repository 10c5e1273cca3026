import type { ComponentChildren } from 'preact'
import { useContext } from 'preact/hooks'
import { href } from '../../display/routing.ts'
import { EndContext, type Session, useSession } from '../../gateway/session.ts'
import { type Polled, usePolled } from '../../gateway/usePolled.ts'
import { type Act, useActs } from '../../parts/acts.tsx'
import { Facts, Tabs } from '../../parts/bits.tsx'
import { type Column, Table } from '../../parts/Table.tsx'
import { Empty, View } from '../../parts/View.tsx'

const pages = [
  ['endpoints', 'Endpoints'],
  ['wallets', 'Wallets'],
  ['keys', 'API keys'],
  ['upstream', 'Without code'],
  ['webhooks', 'Webhooks'],
  ['provider', 'Provider'],
  ['history', 'History'],
] as const

type SetupPage = (typeof pages)[number][0]

function titleOf(page: SetupPage): string {
  return pages.find(([name]) => name === page)?.[1] ?? ''
}

/** A page of what a provider has registered. */
export function SetupView<T>(props: {
  page: SetupPage
  /** Default: the page's own. */
  title?: string
  actions?: ComponentChildren
  polled: Polled<T>
  children: (data: T) => ComponentChildren
}) {
  const { page, title = titleOf(page), children, actions, ...view } = props
  const isReading = useSession().scope === 'read'
  const tabs = (
    <>
      <Tabs
        label="Setup"
        links={pages.map(([name, title]) => [href('setup', name), title])}
        current={href('setup', page)}
      />
      {isReading && <p class="box good">Your API key may only read: nothing can be changed with it.</p>}
    </>
  )
  return (
    <View title={title} below={tabs} actions={!isReading && actions} {...view}>
      {(data) => (
        <fieldset class="bare" disabled={isReading}>
          {children(data)}
        </fieldset>
      )}
    </View>
  )
}

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
