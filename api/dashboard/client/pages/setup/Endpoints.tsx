import { useState } from 'preact/hooks'
import { parseUsdc } from '#protocol/amount'
import type { Endpoint, EndpointList, Wallet, WalletList } from '../../answers.ts'
import { nameNetwork, writeUsdc } from '../../format.ts'
import { Copyable, Table } from '../../parts/bits.tsx'
import { Confirm, Dialog } from '../../parts/Dialog.tsx'
import { Meanwhile } from '../../parts/Differences.tsx'
import { EndpointForm } from '../../parts/EndpointForm.tsx'
import { SetupView, useNotice } from '../../parts/Setup.tsx'
import { Empty } from '../../parts/View.tsx'
import { href } from '../../routing.ts'
import { useSession } from '../../session.ts'
import { usePolled } from '../../usePolled.ts'
import { useVersioned } from '../../useVersioned.ts'

type Open = { what: 'add' } | { what: 'edit' | 'switch'; endpoint: Endpoint }

export function EndpointsPage() {
  const { gateway, provider } = useSession()
  const path = `providers/${provider.providerId}`
  const [open, setOpen] = useState<Open>()
  const { notice, tell } = useNotice()
  const polled = usePolled(async (signal) => {
    const [{ endpoints }, { wallets }] = await Promise.all([
      gateway.get<EndpointList>(`${path}/endpoints`, signal),
      gateway.get<WalletList>(`${path}/wallets`, signal),
    ])
    return { endpoints, wallets: wallets.filter(({ retiredAt }) => retiredAt === null) }
  }, 'endpoints')
  const done = (text: string) => {
    setOpen(undefined)
    tell(text)
    polled.refresh()
  }
  const add = (
    <button type="button" onClick={() => setOpen({ what: 'add' })}>
      Add an endpoint
    </button>
  )
  return (
    <SetupView page="endpoints" actions={add} polled={polled}>
      {({ endpoints, wallets }) => (
        <>
          {notice}
          {endpoints.length === 0 ? (
            <Empty title="No endpoint yet">
              <p>
                An endpoint is a URL of your API and what a request to it costs.{' '}
                <a href={href('start')}>The first steps</a> lead through everything.
              </p>
            </Empty>
          ) : (
            <section class="panel">
              <EndpointTable endpoints={endpoints} open={setOpen} />
            </section>
          )}
          {open?.what === 'add' && (
            <Dialog title="Add an endpoint" close={() => setOpen(undefined)}>
              <EndpointForm
                wallets={wallets}
                cancel={() => setOpen(undefined)}
                save={async (body) => {
                  await gateway.post(`${path}/endpoints`, body)
                  done('The endpoint is registered.')
                }}
              />
            </Dialog>
          )}
          {open?.what === 'edit' && (
            <EditDialog {...open} wallets={wallets} close={() => setOpen(undefined)} done={done} />
          )}
          {open?.what === 'switch' && <SwitchDialog {...open} close={() => setOpen(undefined)} done={done} />}
        </>
      )}
    </SetupView>
  )
}

function EndpointTable({ endpoints, open }: { endpoints: Endpoint[]; open: (what: Open) => void }) {
  return (
    <Table
      label="Endpoints"
      isStacked
      head={[['Endpoint'], ['Price, USDC', true], ['Paid on'], ['Id'], ['State'], ['']]}
    >
      {endpoints.map((endpoint) => {
        const { endpointId, method, url, description, pricing, networks, disabledAt } = endpoint
        return (
          <tr key={endpointId} class={disabledAt === null ? undefined : 'off'}>
            <td class="wrap">
              <span class="code break">
                {method === '*' ? 'any' : method} {url}
              </span>
              {description !== '' && (
                <>
                  <br />
                  <span class="note break">{description}</span>
                </>
              )}
            </td>
            <td class="right number" data-title="Price, USDC">
              {writeUsdc(parseUsdc(pricing.usdcPerUnit))}
            </td>
            <td>{networks.map(({ network }) => nameNetwork(network)).join(', ')}</td>
            <td>
              <Copyable text={endpointId} />
            </td>
            <td>
              <span class={disabledAt === null ? 'status good' : 'status plain'}>
                {disabledAt === null ? 'on sale' : 'disabled'}
              </span>
            </td>
            <td class="actions">
              <button type="button" class="quiet" onClick={() => open({ what: 'edit', endpoint })}>
                Edit<span class="unseen"> {url}</span>
              </button>
              <button type="button" class="quiet" onClick={() => open({ what: 'switch', endpoint })}>
                {disabledAt === null ? 'Disable' : 'Enable'}
                <span class="unseen"> {url}</span>
              </button>
            </td>
          </tr>
        )
      })}
    </Table>
  )
}

type DialogProps = { endpoint: Endpoint; close: () => void; done: (text: string) => void }

function EditDialog({ endpoint, wallets, close, done }: DialogProps & { wallets: Wallet[] }) {
  const { current, meanwhile, patch } = useVersioned(pathOf(endpoint), endpoint)
  return (
    <Dialog title="Change an endpoint" close={close}>
      <EndpointForm
        wallets={wallets}
        endpoint={current}
        cancel={close}
        save={async (body) => {
          await patch(body)
          done('The endpoint is changed. New challenges have its new terms within two seconds.')
        }}
      >
        <Meanwhile differences={meanwhile} />
      </EndpointForm>
    </Dialog>
  )
}

function SwitchDialog({ endpoint, close, done }: DialogProps) {
  const { meanwhile, patch } = useVersioned(pathOf(endpoint), endpoint)
  const disabled = endpoint.disabledAt === null
  return (
    <Confirm
      title={disabled ? 'Disable this endpoint?' : 'Sell this endpoint again?'}
      action={disabled ? 'Disable it' : 'Enable it'}
      isDanger={disabled}
      close={close}
      run={async () => {
        await patch({ disabled })
        done(disabled ? 'The endpoint is disabled.' : 'The endpoint is on sale again.')
      }}
    >
      <p class="code break">{endpoint.url}</p>
      <p>
        {disabled
          ? 'Requests to it are refused from now on. Challenges that are out may be paid for five more minutes, and what was paid settles as usual.'
          : 'Requests to it are answered with its price again.'}
      </p>
      <Meanwhile differences={meanwhile} />
    </Confirm>
  )
}

function pathOf({ providerId, endpointId }: Endpoint): string {
  return `providers/${providerId}/endpoints/${endpointId}`
}
