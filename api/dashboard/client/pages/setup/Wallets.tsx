import { useState } from 'preact/hooks'
import type { EndpointList, Home, Wallet, WalletList } from '../../answers.ts'
import { countOf, nameNetwork } from '../../format.ts'
import { Copyable, Table, Time } from '../../parts/bits.tsx'
import { Confirm, Dialog } from '../../parts/Dialog.tsx'
import { Form, TextField } from '../../parts/Form.tsx'
import { SetupView, useNotice } from '../../parts/Setup.tsx'
import { Empty } from '../../parts/View.tsx'
import { WalletFields } from '../../parts/WalletFields.tsx'
import { useSession } from '../../session.ts'
import { useForm } from '../../useForm.ts'
import { usePolled } from '../../usePolled.ts'

type Open = { what: 'add' } | { what: 'replace' | 'retire'; wallet: Wallet }

export function WalletsPage() {
  const { gateway, provider } = useSession()
  const path = `providers/${provider.providerId}`
  const [open, setOpen] = useState<Open>()
  const { notice, tell } = useNotice()
  const close = () => setOpen(undefined)
  const polled = usePolled(async (signal) => {
    const [{ wallets }, { endpoints }, home] = await Promise.all([
      gateway.get<WalletList>(`${path}/wallets`, signal),
      gateway.get<EndpointList>(`${path}/endpoints`, signal),
      gateway.get<Home>('', signal),
    ])
    return { wallets, endpoints, home }
  }, 'wallets')
  const done = (text: string) => {
    close()
    tell(text)
    polled.refresh()
  }
  const add = (
    <button type="button" onClick={() => setOpen({ what: 'add' })}>
      Add a wallet
    </button>
  )
  return (
    <SetupView page="wallets" actions={add} polled={polled}>
      {({ wallets, endpoints, home }) => (
        <>
          {notice}
          {wallets.length === 0 ? (
            <Empty title="No wallet yet">
              <p>A wallet is the address on a network that buyers’ USDC goes to.</p>
            </Empty>
          ) : (
            <section class="panel">
              <Table
                label="Wallets"
                isStacked
                head={[['Address'], ['Network'], ['Endpoints', true], ['Since'], ['State'], ['']]}
              >
                {wallets.map((wallet) => (
                  <WalletRow
                    key={wallet.walletId}
                    wallet={wallet}
                    uses={
                      endpoints.filter(({ networks }) =>
                        networks.some(({ walletId }) => walletId === wallet.walletId),
                      ).length
                    }
                    open={setOpen}
                  />
                ))}
              </Table>
            </section>
          )}
          {open?.what === 'add' && <AddDialog home={home} path={path} close={close} done={done} />}
          {open?.what === 'replace' && <ReplaceDialog {...open} path={path} close={close} done={done} />}
          {open?.what === 'retire' && (
            <Confirm
              title="Retire this wallet?"
              action="Retire it"
              close={close}
              run={async () => {
                await gateway.delete(`${path}/wallets/${open.wallet.walletId}`)
                done('The wallet is retired.')
              }}
            >
              <p class="code break">{open.wallet.address}</p>
              <p>No endpoint may use it any more. What was signed for it still settles to it.</p>
            </Confirm>
          )}
        </>
      )}
    </SetupView>
  )
}

function WalletRow({ wallet, uses, open }: { wallet: Wallet; uses: number; open: (what: Open) => void }) {
  const { address, network, createdAt, retiredAt } = wallet
  return (
    <tr class={retiredAt === null ? undefined : 'off'}>
      <td>
        <Copyable text={address} />
      </td>
      <td>{nameNetwork(network)}</td>
      <td class="right number" data-title="Endpoints">
        {uses}
      </td>
      <td data-title="Since">
        <Time at={createdAt} />
      </td>
      <td>
        <span class={retiredAt === null ? 'status good' : 'status plain'}>
          {retiredAt === null ? 'in use' : 'retired'}
        </span>
      </td>
      <td class="actions">
        {retiredAt === null && (
          <>
            <button type="button" class="quiet" onClick={() => open({ what: 'replace', wallet })}>
              Replace<span class="unseen"> {address}</span>
            </button>
            <button type="button" class="quiet" onClick={() => open({ what: 'retire', wallet })}>
              Retire<span class="unseen"> {address}</span>
            </button>
          </>
        )}
      </td>
    </tr>
  )
}

type DialogProps = { path: string; close: () => void; done: (text: string) => void }

function AddDialog({ home, path, close, done }: DialogProps & { home: Home }) {
  const { gateway } = useSession()
  const form = useForm(
    { network: home.networks[0]?.network ?? '', address: '' },
    async ({ network, address }) => {
      await gateway.post(`${path}/wallets`, { network, address: address.trim() })
      done('The wallet is registered.')
    },
  )
  return (
    <Dialog title="Add a wallet" close={close}>
      <Form form={form} action="Add the wallet" cancel={close}>
        <WalletFields form={form} home={home} />
      </Form>
    </Dialog>
  )
}

function ReplaceDialog({ wallet, path, close, done }: DialogProps & { wallet: Wallet }) {
  const { gateway } = useSession()
  const form = useForm({ address: '' }, async ({ address }) => {
    const { endpoints } = await gateway.patch<{ endpoints: string[] }>(`${path}/wallets/${wallet.walletId}`, {
      address: address.trim(),
    })
    done(`The wallet is replaced, in ${countOf(endpoints.length, 'endpoint')}.`)
  })
  return (
    <Dialog title="Replace a wallet" close={close}>
      <Form form={form} action="Replace it" cancel={close}>
        <div class="text">
          <p>
            <span class="code break">{wallet.address}</span> on {nameNetwork(wallet.network)} is retired, and
            every endpoint that uses it goes over to the new address. What was challenged or paid before
            settles to the old one: keep its key.
          </p>
        </div>
        <TextField label="New address" field={form.field('address')} placeholder="0x…" />
      </Form>
    </Dialog>
  )
}
