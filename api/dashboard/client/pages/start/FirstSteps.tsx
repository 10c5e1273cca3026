import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'
import type { Endpoint, EndpointList, Home, ProviderPayments, Wallet, WalletList } from '../../answers.ts'
import { nameNetwork } from '../../format.ts'
import { query } from '../../gateway.ts'
import { Copyable, CopyButton, PaymentLink } from '../../parts/bits.tsx'
import { Choice } from '../../parts/Choice.tsx'
import { EndpointForm } from '../../parts/EndpointForm.tsx'
import { Form } from '../../parts/Form.tsx'
import { View } from '../../parts/View.tsx'
import { WalletFields } from '../../parts/WalletFields.tsx'
import { href } from '../../routing.ts'
import { useSession } from '../../session.ts'
import { type Framework, writeSnippet } from '../../snippets.ts'
import { useForm } from '../../useForm.ts'
import { usePolled } from '../../usePolled.ts'

/** Shows what is still missing until somebody pays, and goes on by itself. */
export function FirstSteps() {
  const { gateway, provider } = useSession()
  const path = `providers/${provider.providerId}`
  const polled = usePolled(async (signal) => {
    const [home, { wallets }, { endpoints }, { payments }] = await Promise.all([
      gateway.get<Home>('', signal),
      gateway.get<WalletList>(`${path}/wallets`, signal),
      gateway.get<EndpointList>(`${path}/endpoints`, signal),
      gateway.get<ProviderPayments>(`${path}/payments${query({ limit: 1 })}`, signal),
    ])
    return {
      home,
      wallets: wallets.filter(({ retiredAt }) => retiredAt === null),
      endpoint: endpoints.find(({ disabledAt }) => disabledAt === null),
      payment: payments[0],
    }
  }, 'start')
  const save = async (what: 'wallets' | 'endpoints', body: object) => {
    await gateway.post(`${path}/${what}`, body)
    polled.refresh()
  }
  return (
    <View title="First steps" polled={polled}>
      {({ home, wallets, endpoint, payment }) => (
        <ol class="steps">
          <StepItem title="Register" isDone>
            <p>
              You are <Copyable text={provider.providerId} />
            </p>
          </StepItem>
          <StepItem title="Say where the money goes" isDone={wallets.length > 0} isNow={wallets.length === 0}>
            {wallets.length > 0 ? (
              <Wallets wallets={wallets} />
            ) : (
              <WalletForm home={home} save={(body) => save('wallets', body)} />
            )}
          </StepItem>
          <StepItem
            title="Say what a request costs"
            isDone={endpoint !== undefined}
            isNow={wallets.length > 0 && endpoint === undefined}
          >
            {endpoint !== undefined ? (
              <p class="code break">
                {endpoint.method === '*' ? 'any' : endpoint.method} {endpoint.url}
              </p>
            ) : (
              wallets.length > 0 && (
                <EndpointForm wallets={wallets} save={(body) => save('endpoints', body)} />
              )
            )}
          </StepItem>
          <StepItem
            title="Put the middleware in front of it"
            isDone={payment !== undefined}
            isNow={endpoint !== undefined && payment === undefined}
          >
            {endpoint && <Middleware home={home} providerId={provider.providerId} endpoint={endpoint} />}
          </StepItem>
          <StepItem title="Get paid" isDone={payment !== undefined}>
            <div role="status">
              {payment !== undefined ? (
                <p>
                  Your first payment is here: <PaymentLink paymentId={payment.paymentId} />. It settles by
                  itself; <a href={href('queue')}>see the queue</a>.
                </p>
              ) : (
                endpoint && (
                  <p>
                    Waiting for the first payment. An unpaid request is answered with 402 and your price:{' '}
                    <code class="break">
                      curl -i{['GET', '*'].includes(endpoint.method) ? '' : ` -X ${endpoint.method}`}{' '}
                      {endpoint.url}
                    </code>
                  </p>
                )
              )}
            </div>
          </StepItem>
        </ol>
      )}
    </View>
  )
}

function StepItem(props: { title: string; isDone?: boolean; isNow?: boolean; children?: ComponentChildren }) {
  const { title, isDone = false, isNow = false, children } = props
  return (
    <li class={isDone ? 'done' : isNow ? 'now' : 'ahead'} aria-current={isNow ? 'step' : undefined}>
      <h2>
        {title}
        <span class="unseen">{isDone ? ', done' : isNow ? ', now' : ', later'}</span>
      </h2>
      {children}
    </li>
  )
}

function Wallets({ wallets }: { wallets: Wallet[] }) {
  return wallets.map(({ walletId, address, network }) => (
    <p key={walletId}>
      <Copyable text={address} /> on {nameNetwork(network)}
    </p>
  ))
}

function WalletForm({ home, save }: { home: Home; save: (body: object) => Promise<void> }) {
  const form = useForm({ network: home.networks[0]?.network ?? '', address: '' }, ({ network, address }) =>
    save({ network, address: address.trim() }),
  )
  return (
    <Form form={form} action="Register the wallet">
      <WalletFields form={form} home={home} />
    </Form>
  )
}

function Middleware(props: { home: Home; providerId: string; endpoint: Endpoint }) {
  const { home, providerId, endpoint } = props
  const [framework, setFramework] = useState<Framework>('hono')
  if (endpoint.url.startsWith(`${home.gatewayUrl}/p/${providerId}/`)) {
    return (
      <p>
        Nothing to install: the gateway passes it on to <a href={href('setup', 'upstream')}>your server</a>.
      </p>
    )
  }
  const code = writeSnippet(framework, { gatewayUrl: home.gatewayUrl, providerId, endpoint })
  return (
    <>
      <p>
        With your API key in <code>TOLLKEEPER_API_KEY</code>, this sells it. Or{' '}
        <a href={href('setup', 'upstream')}>sell without code</a>, through the gateway.
      </p>
      <div class="snippet">
        <div class="line">
          <Choice
            label="Framework"
            name="framework"
            options={[
              ['hono', 'Hono'],
              ['express', 'Express'],
            ]}
            value={framework}
            choose={setFramework}
          />
          <CopyButton text={code} label="Copy the code" />
        </div>
        {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable */}
        <section class="scroll" tabIndex={0} aria-label="Middleware">
          <pre>{code}</pre>
        </section>
      </div>
    </>
  )
}
