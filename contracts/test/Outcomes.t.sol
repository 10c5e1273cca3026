// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IBatchSettlement} from "../interfaces/IBatchSettlement.sol";
import {StrictToken} from "./mocks/Tokens.sol";
import {ContractWallet} from "./mocks/Wallets.sol";
import {SettlementTest} from "./support/SettlementTest.sol";
import {Vm} from "./support/Vm.sol";

/// @notice Every outcome that a payment can have, next to a good payment that settles in all cases.
contract OutcomesTest is SettlementTest {
    uint256 private constant GOOD = 1000;

    /// Settles [terms, a good payment] and checks the outcomes and who received what.
    function _check(Terms memory terms, bytes1 outcome) private {
        _check(_pack(terms), terms, outcome, new bytes[](0));
    }

    function _check(
        IBatchSettlement.Payment memory payment,
        Terms memory terms,
        bytes1 outcome,
        bytes[] memory signatures
    ) private {
        IBatchSettlement.Payment[] memory payments = new IBatchSettlement.Payment[](2);
        payments[0] = payment;
        payments[1] = _goodPayments(GOOD, 1)[0];
        Terms memory good = _terms(GOOD);
        bool provider = outcome >> 4 == 0x01;
        bool fee = outcome & 0x0f == 0x01;
        uint256 providerTotal = good.amount + (provider ? terms.amount : 0);
        uint256 feeTotal = good.fee + (fee ? terms.fee : 0);
        uint256 providerBefore = usdc.balanceOf(PROVIDER);
        uint256 platformBefore = usdc.balanceOf(PLATFORM);
        bytes memory outcomes = bytes.concat(outcome, hex"11");

        vm.expectEmit(true, true, true, true, address(settlement));
        emit IBatchSettlement.BatchSettled(
            BATCH_ID,
            address(this),
            address(usdc),
            1,
            2 + (provider ? 1 : 0) + (fee ? 1 : 0),
            providerTotal,
            feeTotal,
            outcomes
        );
        vm.recordLogs();
        vm.assertEq(settlement.settle(_batch(), payees, payments, signatures), outcomes, "outcomes");
        _checkFailure(outcome >> 4 == 0x03, outcome & 0x0f == 0x03, terms);
        vm.assertEq(usdc.balanceOf(PROVIDER) - providerBefore, providerTotal, "what the provider received");
        vm.assertEq(usdc.balanceOf(PLATFORM) - platformBefore, feeTotal, "what the platform received");
    }

    string private _reason;

    function _expectReason(string memory reason) private {
        _reason = reason;
    }

    /// Checks that there is one AuthorizationFailed for the authorization that failed, and none if none failed.
    function _checkFailure(bool providerFailed, bool feeFailed, Terms memory terms) private {
        Vm.Log[] memory logs = vm.getRecordedLogs();
        uint256 count;
        for (uint256 i; i < logs.length; ++i) {
            if (logs[i].topics[0] != IBatchSettlement.AuthorizationFailed.selector) continue;
            ++count;
            vm.assertEq(logs[i].topics[1], BATCH_ID, "batchId of the failure");
            vm.assertEq(logs[i].topics[2], bytes32(uint256(uint160(terms.from))), "from of the failure");
            vm.assertEq(logs[i].topics[3], feeFailed ? _fee(terms).nonce : terms.nonce, "nonce of the failure");
            (uint256 index, bytes memory reason) = abi.decode(logs[i].data, (uint256, bytes));
            vm.assertEq(index, 0, "index of the failure");
            vm.assertEq(_text(reason), _reason, "reason of the failure");
        }
        vm.assertEq(count, providerFailed || feeFailed ? 1 : 0, "failures logged");
    }

    /// Returns the string in an Error(string). USDC leaves nonzero bytes in the padding after it, so the whole revert
    /// data can't be compared.
    function _text(bytes memory reason) private pure returns (string memory) {
        bytes memory arguments = new bytes(reason.length - 4);
        for (uint256 i; i < arguments.length; ++i) arguments[i] = reason[i + 4];
        return abi.decode(arguments, (string));
    }

    function _funded() private returns (Terms memory terms) {
        terms = _terms(0);
        _fund(terms);
    }

    function test_default_bothSettle() public {
        _check(_funded(), 0x11);
    }

    function test_default_bothParities() public {
        bool[2] memory seen;
        for (uint256 i; !(seen[0] && seen[1]); ++i) {
            Terms memory terms = _terms(i);
            _fund(terms);
            IBatchSettlement.Payment[] memory payments = _one(terms);
            seen[uint256(payments[0].vs) >> 255] = true;
            vm.assertEq(_settle(payments), hex"11", "outcomes");
        }
    }

    function test_args_explicitFeeNonce() public {
        Terms memory terms = _funded();
        terms.feeNonce = bytes32(uint256(7));
        _check(terms, 0x11);
        vm.assertTrue(usdc.authorizationState(terms.from, terms.feeNonce), "the fee's nonce");
    }

    function test_args_noFee() public {
        Terms memory terms = _terms(0);
        terms.fee = 0;
        _fund(terms);
        _check(terms, 0x10);
    }

    function test_args_noFeeAndFailed() public {
        Terms memory terms = _terms(0);
        terms.fee = 0;
        _expectReason("ERC20: transfer amount exceeds balance");
        _check(terms, 0x30);
    }

    function test_args_secondPayee() public {
        payees.push(address(0xCAFE));
        Terms memory terms = _funded();
        terms.payeeIndex = 1;
        vm.assertEq(_settle(_one(terms)), hex"11", "outcomes");
        vm.assertEq(usdc.balanceOf(address(0xCAFE)), terms.amount, "what the second payee received");
    }

    function test_args_largestValues() public {
        Terms memory terms = _terms(0);
        (terms.amount, terms.fee) = (type(uint128).max, type(uint128).max);
        _fund(terms);
        _check(terms, 0x11);
    }

    function test_args_longestWindow() public {
        Terms memory terms = _funded();
        (terms.validAfter, terms.validBefore) = (NOW - 1, type(uint40).max);
        _check(terms, 0x11);
    }

    function test_args_farWindow() public {
        vm.warp(1 << 39);
        Terms memory terms = _terms(0);
        (terms.validAfter, terms.validBefore) = ((1 << 39) - 1, type(uint40).max);
        _fund(terms);
        vm.assertEq(_settle(_one(terms)), hex"11", "outcomes");
    }

    function test_args_dirtyPayeeBitsAreDropped() public {
        address[2] memory tokens = [address(usdc), address(new StrictToken())];
        for (uint256 i; i < tokens.length; ++i) {
            IBatchSettlement.Batch memory batch = _batch();
            batch.token = tokens[i];
            IBatchSettlement.Payment[] memory payments = _one(_funded());
            bytes memory data = abi.encodeCall(settlement.settle, (batch, payees, payments, new bytes[](0)));
            // selector, Batch (5 words), three offsets, length of payees, then payees[0], whose upper 12 bytes are free.
            data[4 + 9 * 32] = 0xff;
            (bool success, bytes memory answer) = address(settlement).call(data);
            vm.assertTrue(success, "settle");
            vm.assertEq(abi.decode(answer, (bytes)), hex"11", "outcomes");
        }
    }

    function test_behavior_providerHalfFrontRun() public {
        Terms memory terms = _funded();
        _submit(terms, _provider(terms));
        _check(terms, 0x21);
    }

    function test_behavior_feeHalfFrontRun() public {
        Terms memory terms = _funded();
        _submit(terms, _fee(terms));
        _check(terms, 0x12);
    }

    function test_behavior_bothHalvesFrontRun() public {
        Terms memory terms = _funded();
        _submit(terms, _provider(terms));
        _submit(terms, _fee(terms));
        _check(terms, 0x22);
    }

    function test_behavior_usedAfterAnUnusedOne() public {
        Terms memory used = _terms(1);
        _fund(used);
        _submit(used, _provider(used));
        _submit(used, _fee(used));
        IBatchSettlement.Payment[] memory payments = new IBatchSettlement.Payment[](4);
        (payments[0], payments[1]) = (_pack(_funded()), _pack(used));
        payments[2] = _goodPayments(GOOD, 1)[0];
        payments[3] = payments[1];
        vm.assertEq(_settle(payments), hex"11221122", "outcomes");
    }

    function test_behavior_sameHalfTwiceInOneBatch() public {
        IBatchSettlement.Payment[] memory payments = new IBatchSettlement.Payment[](3);
        payments[0] = _pack(_funded());
        payments[1] = payments[0];
        payments[2] = payments[0];
        vm.assertEq(_settle(payments), hex"112222", "outcomes");
    }

    function test_behavior_cancelledProvider() public {
        Terms memory terms = _funded();
        _cancel(terms, terms.nonce);
        _check(terms, 0x21);
    }

    function test_behavior_cancelledFee() public {
        Terms memory terms = _funded();
        _cancel(terms, _fee(terms).nonce);
        _check(terms, 0x12);
    }

    function test_behavior_expired() public {
        Terms memory terms = _funded();
        terms.validBefore = NOW;
        _expectReason("FiatTokenV2: authorization is expired");
        _check(terms, 0x34);
    }

    function test_behavior_notYetValid() public {
        Terms memory terms = _funded();
        terms.validAfter = NOW;
        _expectReason("FiatTokenV2: authorization is not yet valid");
        _check(terms, 0x34);
    }

    function test_behavior_badProviderSignature() public {
        Terms memory terms = _funded();
        IBatchSettlement.Payment memory payment = _pack(terms);
        (payment.r, payment.vs) = _compact(_key(1), _digest(terms, _provider(terms)));
        _expectReason("FiatTokenV2: invalid signature");
        _check(payment, terms, 0x34, new bytes[](0));
    }

    function test_behavior_badFeeSignature() public {
        Terms memory terms = _funded();
        IBatchSettlement.Payment memory payment = _pack(terms);
        (payment.feeR, payment.feeVs) = _compact(_key(1), _digest(terms, _fee(terms)));
        _expectReason("FiatTokenV2: invalid signature");
        _check(payment, terms, 0x13, new bytes[](0));
    }

    function test_behavior_wrongAmount() public {
        Terms memory terms = _funded();
        IBatchSettlement.Payment memory payment = _pack(terms);
        payment.values += 1 << 128;
        _expectReason("FiatTokenV2: invalid signature");
        _check(payment, terms, 0x34, new bytes[](0));
    }

    function test_behavior_wrongFeeRecipient() public {
        Terms memory terms = _funded();
        IBatchSettlement.Batch memory batch = _batch();
        batch.feeRecipient = address(0xBAD);
        vm.assertEq(settlement.settle(batch, payees, _one(terms), new bytes[](0)), hex"13", "outcomes");
        vm.assertEq(usdc.balanceOf(address(0xBAD)), 0, "what the wrong recipient received");
    }

    function test_behavior_nothingForTheProvider() public {
        Terms memory terms = _terms(0);
        usdc.mint(terms.from, terms.amount - 1);
        _expectReason("ERC20: transfer amount exceeds balance");
        _check(terms, 0x34);
    }

    function test_behavior_nothingLeftForTheFee() public {
        Terms memory terms = _terms(0);
        usdc.mint(terms.from, terms.amount + terms.fee - 1);
        _expectReason("ERC20: transfer amount exceeds balance");
        _check(terms, 0x13);
    }

    function test_behavior_blacklistedBuyer() public {
        Terms memory terms = _funded();
        usdc.blacklist(terms.from);
        _expectReason("Blacklistable: account is blacklisted");
        _check(terms, 0x34);
    }

    function test_behavior_blacklistedProvider() public {
        payees.push(address(0xCAFE));
        usdc.blacklist(address(0xCAFE));
        Terms memory terms = _funded();
        terms.payeeIndex = 1;
        _expectReason("Blacklistable: account is blacklisted");
        _check(terms, 0x34);
    }

    function test_behavior_blacklistedPlatform() public {
        usdc.blacklist(PLATFORM);
        vm.assertEq(_settle(_goodPayments(0, 2)), hex"1313", "outcomes");
    }

    function test_behavior_pausedToken() public {
        IBatchSettlement.Payment[] memory payments = _goodPayments(0, 2);
        usdc.pause();
        _expectNothingSettled(hex"3434");
        _settle(payments);
        usdc.unpause();
        vm.assertEq(_settle(payments), hex"1111", "outcomes once it is unpaused");
    }

    function test_behavior_longSignature() public {
        Terms memory terms = _terms(0);
        terms.from = address(new ContractWallet(vm.addr(terms.key)));
        _fund(terms);
        (bytes[] memory signatures, IBatchSettlement.Payment memory payment) = _long(terms);
        _check(payment, terms, 0x11, signatures);
    }

    function test_behavior_wrongLongSignature() public {
        Terms memory terms = _terms(0);
        terms.from = address(new ContractWallet(vm.addr(terms.key)));
        _fund(terms);
        (bytes[] memory signatures, IBatchSettlement.Payment memory payment) = _long(terms);
        (payment.r, payment.feeR) = (payment.feeR, payment.r);
        _expectReason("FiatTokenV2: invalid signature");
        _check(payment, terms, 0x34, signatures);
    }

    function test_behavior_usedLongSignature() public {
        Terms memory terms = _terms(0);
        terms.from = address(new ContractWallet(vm.addr(terms.key)));
        _fund(terms);
        (bytes[] memory signatures, IBatchSettlement.Payment memory payment) = _long(terms);
        usdc.transferWithAuthorization(
            terms.from, PROVIDER, terms.amount, 0, terms.validBefore, terms.nonce, signatures[1]
        );
        _check(payment, terms, 0x21, signatures);
    }

    /// Packs a payment whose signatures are long: each consists of three copies of a plain signature. Its length isn't a
    /// multiple of 32, and the padding of its last word must not reach the token.
    function _long(Terms memory terms)
        private
        view
        returns (bytes[] memory signatures, IBatchSettlement.Payment memory payment)
    {
        payment = _pack(terms);
        (payment.r, payment.vs) = (bytes32(uint256(1)), 0);
        (payment.feeR, payment.feeVs) = (bytes32(uint256(0)), bytes32(uint256(1) << 255));
        signatures = new bytes[](2);
        bytes memory provider = _sign(terms, _provider(terms));
        bytes memory fee = _sign(terms, _fee(terms));
        signatures[1] = bytes.concat(provider, provider, provider);
        signatures[0] = bytes.concat(fee, fee, fee);
    }

    function test_args_triggerAndKeeperAreEchoed() public {
        IBatchSettlement.Batch memory batch = _batch();
        (batch.trigger, batch.batchId) = (255, 0);
        IBatchSettlement.Payment[] memory payments = _goodPayments(0, 1);
        vm.expectEmit(true, true, true, true, address(settlement));
        emit IBatchSettlement.BatchSettled(0, address(0xABC), address(usdc), 255, 2, 47_500, 2_500, hex"11");
        vm.prank(address(0xABC));
        settlement.settle(batch, payees, payments, new bytes[](0));
    }

    function test_error_noPayments() public {
        _expectNothingSettled("");
        _settle(new IBatchSettlement.Payment[](0));
    }

    function test_error_nothingSettled() public {
        IBatchSettlement.Payment[] memory payments = _goodPayments(0, 3);
        _settle(payments);
        _expectNothingSettled(hex"222222");
        _settle(payments);
    }

    function test_error_tokenWithoutCode() public {
        IBatchSettlement.Batch memory batch = _batch();
        IBatchSettlement.Payment[] memory payments = _goodPayments(0, 1);
        // The zero address, an account, and a precompile. A call to any of them succeeds.
        address[3] memory tokens = [address(0), _buyer(0), address(4)];
        for (uint256 i; i < tokens.length; ++i) {
            batch.token = tokens[i];
            vm.expectRevert(abi.encodeWithSelector(IBatchSettlement.InvalidToken.selector, tokens[i]));
            settlement.settle(batch, payees, payments, new bytes[](0));
        }
    }

    function test_error_payeeIndex() public {
        IBatchSettlement.Payment[] memory payments = _goodPayments(0, 2);
        payments[1].head |= 1 << 80;
        vm.expectRevert(abi.encodeWithSelector(IBatchSettlement.InvalidPayee.selector, 1));
        _settle(payments);
        payments[1].head |= uint256(0xffff) << 80;
        vm.expectRevert(abi.encodeWithSelector(IBatchSettlement.InvalidPayee.selector, 0xffff));
        _settle(payments);
    }

    function test_error_signatureIndex() public {
        IBatchSettlement.Payment[] memory payments = _goodPayments(0, 2);
        (payments[1].r, payments[1].vs) = (bytes32(uint256(1)), 0);
        vm.expectRevert(abi.encodeWithSelector(IBatchSettlement.InvalidSignatureIndex.selector, 1));
        settlement.settle(_batch(), payees, payments, new bytes[](1));
        payments[1].r = bytes32(type(uint256).max);
        vm.expectRevert(abi.encodeWithSelector(IBatchSettlement.InvalidSignatureIndex.selector, type(uint256).max));
        settlement.settle(_batch(), payees, payments, new bytes[](1));
    }

    function test_error_feeSignatureIndex() public {
        IBatchSettlement.Payment[] memory payments = _goodPayments(0, 1);
        (payments[0].feeR, payments[0].feeVs) = (0, 0);
        vm.expectRevert(abi.encodeWithSelector(IBatchSettlement.InvalidSignatureIndex.selector, 0));
        _settle(payments);
    }

    function test_error_etherIsRefused() public {
        (bool success,) = address(settlement).call{value: 1}("");
        vm.assertTrue(!success, "plain ether");
        bytes memory data = abi.encodeCall(settlement.settle, (_batch(), payees, _goodPayments(0, 1), new bytes[](0)));
        (success,) = address(settlement).call{value: 1}(data);
        vm.assertTrue(!success, "ether with settle");
    }
}
