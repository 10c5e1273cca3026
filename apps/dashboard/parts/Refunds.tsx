import { ownCommand, whereItRuns } from '@tollkeeper/runtime/ownCommand'
import { formatUsdc, parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { ProtocolError } from '@tollkeeper/sdk/protocol/errors'
import type { NetworkName } from '@tollkeeper/sdk/protocol/networks'
import { useState } from 'preact/hooks'
import type { Address, Hex } from 'viem'
import { describeCode, shorten, writeUsdc } from '../display/format.ts'
import type { Refund, Refunds, Wallet, WalletList } from '../gateway/answers.ts'
import { GatewayError } from '../gateway/gateway.ts'
import { useSession } from '../gateway/session.ts'
import { usePolled } from '../gateway/usePolled.ts'
import { type InjectedWallet, injectedWallet, signTransfer } from '../gateway/wallet.ts'
import { Dialog } from './Dialog.tsx'
import { type Body, type Field, Form } from './Form.tsx'
import { Status } from './payments.tsx'
import { Rows } from './Table.tsx'
import { Copyable, CopyButton, Panel, Time, Transaction } from './ui.tsx'
import { Loading } from './View.tsx'

/** Time in seconds for which the signature of a refund is valid. It allows for retries, which take 25 hours. */
const validSeconds = 26 * 3_600

/** Shows a payment's refunds and a form for another one. Shows nothing if a refund is impossible. */
export function RefundPanel({ refunds: state, refresh }: { refunds: Refunds; refresh: () => void }) {
  const [isOpen, setIsOpen] = useState(false)
  const { scope } = useSession()
  const { refunds, network, refundableUsdc, next } = state
  const canRefund = BigInt(refundableUsdc) > 0n && next !== null
  if (refunds.length === 0 && !canRefund) return null
  return (
    <Panel
      title="Refunds"
      label="Refunds"
      beside={
        canRefund &&
        scope === 'full' && (
          <button type="button" class="quiet small end" onClick={() => setIsOpen(true)}>
            Refund
          </button>
        )
      }
    >
      <Rows rows={refunds} keyOf={({ number }) => number} none="No refunds.">
        {(refund) => <RefundItem refund={refund} network={network} />}
      </Rows>
      {isOpen && (
        <RefundDialog
          state={state}
          close={() => setIsOpen(false)}
          done={() => {
            setIsOpen(false)
            refresh()
          }}
        />
      )}
    </Panel>
  )
}

function RefundItem({ refund, network }: { refund: Refund; network: string }) {
  const { valueUsdc, refund_status, from, acceptedAt, transactionHash, failureCode } = refund
  return (
    <>
      <div class="line">
        <b class="number">{writeUsdc(BigInt(valueUsdc))} USDC</b>
        <Status status={refund_status} />
        <span class="note">
          asked for <Time at={acceptedAt} />, from <Copyable text={from} />
        </span>
      </div>
      {failureCode !== null && refund_status !== 'settled' && (
        <p class="problem">{describeCode(failureCode)}</p>
      )}
      {transactionHash !== null && <Transaction hash={transactionHash} network={network} />}
    </>
  )
}

type RefundDialogProps = { state: Refunds; close: () => void; done: () => void }

function RefundDialog({ state, close, done }: RefundDialogProps) {
  const { gateway, path } = useSession()
  const wallet = injectedWallet()
  const polled = usePolled((signal) => gateway.get<WalletList>(`${path}/wallets`, signal), 'refund')
  const wallets = polled.data?.wallets.filter(({ network }) => network === state.network)
  return (
    <Dialog title="Refund this payment" close={close}>
      <GasLeft gas={state.gas} />
      {wallets === undefined ? (
        <Loading>{polled.error?.message}</Loading>
      ) : wallet === undefined ? (
        <ByCommand state={state} />
      ) : (
        <ByWallet wallet={wallet} wallets={wallets} state={state} close={close} done={done} />
      )}
    </Dialog>
  )
}

/** Shows the operator's remaining gas allowance for today's refunds, and what to do if it is insufficient. */
function GasLeft({ gas: { neededUsdc, leftUsdc, limitUsdc, resetsAt } }: Pick<Refunds, 'gas'>) {
  const usd = (amount: string) => `${formatUsdc(BigInt(amount))} USD`
  const isEnough = neededUsdc === null || BigInt(neededUsdc) <= BigInt(leftUsdc)
  return (
    <p class={isEnough ? 'note' : 'problem'}>
      Gas: {usd(leftUsdc)} of {usd(limitUsdc)} is left today for your refunds
      {neededUsdc !== null && `, and this one reserves ${usd(neededUsdc)}`}.
      {!isEnough && (
        <>
          {' '}
          This refund would be refused. Try again <Time at={resetsAt} />, or ask the operator of this gateway
          for a grant.
        </>
      )}
    </p>
  )
}

function ByWallet(props: RefundDialogProps & { wallet: InjectedWallet; wallets: Wallet[] }) {
  const { wallet, wallets, state, close, done } = props
  const { gateway, path } = useSession()
  const fields: Field[] = [
    {
      name: 'amount',
      label: 'Amount, in USDC',
      value: formatUsdc(BigInt(state.refundableUsdc)),
      inputMode: 'decimal',
      note: `At most ${writeUsdc(BigInt(state.refundableUsdc))} USDC, fee included. At least ${writeUsdc(BigInt(state.minimumUsdc))} USDC, or the whole payment if it was less.`,
    },
    {
      name: 'from',
      label: 'From your wallet',
      value: wallets[0]?.address ?? '',
      options: wallets.map(({ address, retiredAt }) => [
        address,
        `${shorten(address)}${retiredAt === null ? '' : ' (retired)'}`,
      ]),
    },
  ]
  const send = async ({ amount, from }: Body) => {
    const payload = await signTransfer(wallet, {
      network: state.network as NetworkName,
      asset: state.asset as Address,
      from: from as Address,
      to: state.payer as Address,
      value: parseAmount(String(amount)),
      validBefore: BigInt(Math.floor(Date.now() / 1000) + validSeconds),
      nonce: state.next?.nonce as Hex,
    })
    await gateway.post(`${path}/payments/${state.paymentId}/refunds`, { payload })
    done()
  }
  return (
    <Form fields={fields} action="Sign and refund" cancel={close} send={send}>
      <p>
        Your wallet signs a transfer, which settles with the next batch. The platform pays the gas. The USDC
        goes to the payer, <Copyable text={state.payer} />
      </p>
    </Form>
  )
}

/** Parses the amount. @throws {GatewayError} that names the field, so that the form shows the error there */
function parseAmount(text: string): bigint {
  try {
    return parseUsdc(text)
  } catch (error) {
    if (!(error instanceof ProtocolError)) throw error
    throw new GatewayError(422, error.code, error.message, [{ field: 'amount', message: error.message }])
  }
}

function ByCommand({ state }: { state: Refunds }) {
  const { provider } = useSession()
  const command = [
    `${ownCommand} provider refund ${state.paymentId}`,
    `--provider ${provider.providerId}`,
    // With the number, a second run of the command doesn't pay twice.
    `--number ${state.next?.number}`,
    `--gateway ${new URL('..', document.baseURI).href.replace(/\/$/, '')}`,
  ].join(' ')
  return (
    <div class="text">
      <p>
        A refund is a transfer that your own wallet signs, but this browser has no wallet. Instead, run this
        command {whereItRuns}, with the API key in TOLLKEEPER_API_KEY and the wallet’s key in
        WALLET_PRIVATE_KEY. It refunds the whole payment:
      </p>
      <p class="box">
        <code class="break">{command}</code> <CopyButton text={command} label="Copy the command" />
      </p>
    </div>
  )
}
