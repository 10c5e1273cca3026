// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IBatchSettlement} from "../interfaces/IBatchSettlement.sol";
import {ContractWallet} from "./mocks/Wallets.sol";
import {SettlementTest} from "./support/SettlementTest.sol";

/// @notice Any mix of good and bad payments settles exactly the good ones.
contract MixesTest is SettlementTest {
    enum Kind {
        GOOD,
        NO_FEE,
        EXPLICIT_FEE_NONCE,
        CONTRACT_WALLET,
        PROVIDER_USED,
        FEE_USED,
        BOTH_USED,
        PROVIDER_CANCELLED,
        FEE_CANCELLED,
        EXPIRED,
        NOT_YET_VALID,
        BAD_PROVIDER_SIGNATURE,
        BAD_FEE_SIGNATURE,
        NO_BALANCE,
        NO_BALANCE_FOR_FEE,
        BLACKLISTED,
        NO_FEE_EXPIRED
    }

    uint256 private constant KINDS = 17;

    /// The outcome of each kind, in the order above.
    bytes private constant EXPECTED = hex"1110111121122221123434341334133430";

    function test_fuzz_anyMixSettlesTheGoodOnes(uint256 seed) public {
        uint256 count = 1 + seed % 24;
        payees.push(address(0xCAFE));
        IBatchSettlement.Payment[] memory payments = new IBatchSettlement.Payment[](count);
        bytes[] memory signatures = new bytes[](2 * count);
        bytes memory expected = new bytes(count);
        uint256[2] memory providerTotals;
        uint256 feeTotal;
        uint256 settled;
        for (uint256 i; i < count; ++i) {
            uint256 random = uint256(keccak256(abi.encode(seed, i)));
            Terms memory terms = _terms(i);
            terms.payeeIndex = random >> 8 & 1;
            // The gateway accepts amounts up to 2^64 - 1.
            (terms.amount, terms.fee) = (1 + uint64(random >> 64) / 2, 1 + uint64(random >> 128) / 2);
            Kind kind = Kind(random % KINDS);
            expected[i] = EXPECTED[uint256(kind)];
            payments[i] = _make(kind, terms, signatures, 2 * i);
            if (expected[i] >> 4 == 0x01) {
                providerTotals[terms.payeeIndex] += terms.amount;
                ++settled;
            }
            if (expected[i] & 0x0f == 0x01) {
                feeTotal += terms.fee;
                ++settled;
            }
        }
        uint256 before = usdc.balanceOf(PLATFORM);
        uint256[2] memory provided = [usdc.balanceOf(payees[0]), usdc.balanceOf(payees[1])];

        if (settled == 0) {
            _expectNothingSettled(expected);
            settlement.settle(_batch(), payees, payments, signatures);
            return;
        }
        vm.expectEmit(true, true, true, true, address(settlement));
        emit IBatchSettlement.BatchSettled(
            BATCH_ID,
            address(this),
            address(usdc),
            1,
            settled,
            providerTotals[0] + providerTotals[1],
            feeTotal,
            expected
        );
        bytes memory outcomes = settlement.settle(_batch(), payees, payments, signatures);
        vm.assertEq(outcomes, expected, "outcomes");
        vm.assertEq(usdc.balanceOf(payees[0]) - provided[0], providerTotals[0], "the first provider's balance");
        vm.assertEq(usdc.balanceOf(payees[1]) - provided[1], providerTotals[1], "the second provider's balance");
        vm.assertEq(usdc.balanceOf(PLATFORM) - before, feeTotal, "the platform's balance");
    }

    function _make(Kind kind, Terms memory terms, bytes[] memory signatures, uint256 slot)
        private
        returns (IBatchSettlement.Payment memory payment)
    {
        if (kind == Kind.NO_FEE || kind == Kind.NO_FEE_EXPIRED) terms.fee = 0;
        if (kind == Kind.EXPIRED || kind == Kind.NO_FEE_EXPIRED) terms.validBefore = NOW;
        if (kind == Kind.NOT_YET_VALID) terms.validAfter = NOW;
        if (kind == Kind.EXPLICIT_FEE_NONCE) terms.feeNonce = keccak256(abi.encode("fee", terms.nonce));
        if (kind == Kind.CONTRACT_WALLET) terms.from = address(new ContractWallet(vm.addr(terms.key)));
        if (kind == Kind.NO_BALANCE_FOR_FEE) usdc.mint(terms.from, terms.amount);
        else if (kind != Kind.NO_BALANCE) _fund(terms);
        payment = _pack(terms);

        if (kind == Kind.PROVIDER_USED || kind == Kind.BOTH_USED) _submit(terms, _provider(terms));
        if (kind == Kind.FEE_USED || kind == Kind.BOTH_USED) _submit(terms, _fee(terms));
        if (kind == Kind.PROVIDER_CANCELLED) _cancel(terms, terms.nonce);
        if (kind == Kind.FEE_CANCELLED) _cancel(terms, _fee(terms).nonce);
        if (kind == Kind.BLACKLISTED) usdc.blacklist(terms.from);
        if (kind == Kind.BAD_PROVIDER_SIGNATURE) {
            (payment.r, payment.vs) = _compact(_key(1 << 20), _digest(terms, _provider(terms)));
        }
        if (kind == Kind.BAD_FEE_SIGNATURE) {
            (payment.feeR, payment.feeVs) = _compact(_key(1 << 20), _digest(terms, _fee(terms)));
        }
        if (kind == Kind.CONTRACT_WALLET) {
            bytes memory provider = _sign(terms, _provider(terms));
            bytes memory fee = _sign(terms, _fee(terms));
            signatures[slot] = bytes.concat(provider, provider, provider);
            signatures[slot + 1] = bytes.concat(fee, fee, fee);
            (payment.r, payment.vs) = (bytes32(slot), 0);
            (payment.feeR, payment.feeVs) = (bytes32(slot + 1), 0);
        }
    }

    /// All fields reach the token unchanged, because the token recovers the signer from them.
    function test_fuzz_fieldsReachTheToken(uint256 seed, uint64 amount, uint64 fee, uint32 after_, uint40 before_)
        public
    {
        Terms memory terms = _terms(seed % 1000);
        (terms.amount, terms.fee) = (amount, fee);
        terms.validAfter = after_ % NOW;
        terms.validBefore = before_ > NOW ? before_ : NOW + 1 + before_;
        terms.nonce = keccak256(abi.encode(seed));
        terms.feeNonce = seed % 2 == 0 ? bytes32(0) : keccak256(abi.encode(seed, "fee"));
        _fund(terms);
        vm.assertEq(_settle(_one(terms)), fee == 0 ? bytes(hex"10") : bytes(hex"11"), "outcomes");
        vm.assertEq(usdc.balanceOf(terms.from), 0, "the buyer's remaining balance");
    }
}
