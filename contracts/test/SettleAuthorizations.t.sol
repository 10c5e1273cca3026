// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IBatchSettlement} from "../interfaces/IBatchSettlement.sol";
import {ISplitterFactory} from "../interfaces/ISplitterFactory.sol";
import {IFiatToken} from "./support/IFiatToken.sol";
import {BurningFactory, LongWindedFactory, ReentrantFactory} from "./mocks/Factories.sol";
import {Attack, ContractWallet, HostileWallet} from "./mocks/Wallets.sol";
import {SplitterTest} from "./support/SplitterTest.sol";
import {Vm} from "./support/Vm.sol";

/// @notice Batches of one-signature payments, and the sweep at the end of each.
contract SettleAuthorizationsTest is SplitterTest {
    function _settleWith(
        IBatchSettlement.Batch memory batch,
        IBatchSettlement.Authorization[] memory authorizations,
        bytes[] memory signatures
    ) private returns (bytes memory) {
        return settlement.settleAuthorizations(batch, payees, authorizations, signatures, _noSweep());
    }

    function _expectBatchSettled(uint256 settled, uint256 total, bytes memory outcomes) private {
        vm.expectEmit(true, true, true, true, address(settlement));
        emit IBatchSettlement.BatchSettled(
            BATCH_ID, address(this), address(usdc), 1, settled, total, 0, outcomes
        );
    }

    function test_default_anyRecipient() public {
        IBatchSettlement.Authorization[] memory authorizations = _goodOnes(0, 2);
        _expectBatchSettled(2, 95_000, hex"1010");
        vm.assertEq(_settleOnes(authorizations, _noSweep()), hex"1010", "outcomes");
        _checkPaid(95_000, 0, "without a splitter");
    }

    function test_default_sweepsWhatItSettled() public {
        payees[0] = _splitterOf(_usual());
        vm.assertEq(_settleOnes(_goodOnes(0, 2), _sweepOf(_list(_usual()))), hex"1010", "outcomes");
        _checkPaid(85_500, 9_500, "first time");
        vm.assertEq(_settleOnes(_goodOnes(2, 2), _sweepOf(_list(_usual()))), hex"1010", "outcomes");
        _checkPaid(171_000, 19_000, "second time");
    }

    /// The index relies on this order: each AuthorizationUsed directly followed by its Transfer, then BatchSettled,
    /// then the sweep.
    function test_default_orderOfTheLogs() public {
        payees[0] = _splitterOf(_usual());
        IBatchSettlement.Authorization[] memory authorizations = _goodOnes(0, 2);
        vm.recordLogs();
        _settleOnes(authorizations, _sweepOf(_list(_usual())));
        Vm.Log[] memory logs = vm.getRecordedLogs();
        bytes32[7] memory topics = [
            IFiatToken.AuthorizationUsed.selector,
            IFiatToken.Transfer.selector,
            IFiatToken.AuthorizationUsed.selector,
            IFiatToken.Transfer.selector,
            IBatchSettlement.BatchSettled.selector,
            IFiatToken.Transfer.selector,
            IFiatToken.Transfer.selector
        ];
        vm.assertEq(logs.length, 7, "logs");
        for (uint256 i; i < 7; ++i) vm.assertEq(logs[i].topics[0], topics[i], "log");
    }

    function test_args_severalRecipients() public {
        payees.push(address(0xCAFE));
        payees.push(_splitterOf(_usual()));
        IBatchSettlement.Authorization[] memory authorizations = new IBatchSettlement.Authorization[](3);
        for (uint256 i; i < 3; ++i) {
            Terms memory terms = _terms(i);
            terms.payeeIndex = i;
            terms.amount = 1_000 * (i + 1);
            _fund(terms);
            authorizations[i] = _packOne(terms);
        }
        vm.assertEq(_settleOnes(authorizations, _sweepOf(_list(_usual()))), hex"101010", "outcomes");
        _checkPaid(1_000 + 2_700, 300, "for three payments");
        vm.assertEq(usdc.balanceOf(address(0xCAFE)), 2_000, "the second recipient's balance");
    }

    function test_args_largestValue() public {
        Terms memory terms = _terms(0);
        terms.amount = (1 << 255) - 1 - usdc.totalSupply();
        usdc.mint(terms.from, terms.amount);
        IBatchSettlement.Authorization[] memory authorizations = new IBatchSettlement.Authorization[](1);
        // The value uses all 256 bits. If the contract packed another field into the same word, this test would fail.
        payees[0] = address(0xCAFE);
        authorizations[0] = _packLarge(terms);
        _expectBatchSettled(1, terms.amount, hex"10");
        vm.assertEq(_settleOnes(authorizations, _noSweep()), hex"10", "outcomes");
        vm.assertEq(usdc.balanceOf(address(0xCAFE)), terms.amount, "the recipient's balance");
    }

    /// Doesn't use `_pack`, which shifts the amount and would lose its upper half.
    function _packLarge(Terms memory terms) private view returns (IBatchSettlement.Authorization memory packed) {
        packed.head = uint256(uint160(terms.from)) << 96 | terms.validBefore;
        (packed.value, packed.nonce) = (terms.amount, terms.nonce);
        (packed.r, packed.vs) = _compact(terms.key, _digest(terms, _provider(terms)));
    }

    function test_fuzz_fieldsReachTheToken(uint256 seed, uint64 amount, uint32 after_, uint40 before_) public {
        Terms memory terms = _terms(seed % 1000);
        terms.amount = amount;
        terms.validAfter = after_ % NOW;
        terms.validBefore = before_ > NOW ? before_ : NOW + 1 + before_;
        terms.nonce = keccak256(abi.encode(seed));
        usdc.mint(terms.from, uint256(amount) + 1);
        IBatchSettlement.Authorization[] memory authorizations = new IBatchSettlement.Authorization[](1);
        authorizations[0] = _packOne(terms);
        vm.assertEq(_settleOnes(authorizations, _noSweep()), hex"10", "outcomes");
        vm.assertEq(usdc.balanceOf(terms.from), 1, "the buyer's remaining balance");
    }

    /// Good authorizations settle between bad ones of every kind.
    function test_behavior_eachOutcome() public {
        IBatchSettlement.Authorization[] memory authorizations = new IBatchSettlement.Authorization[](11);
        bytes[] memory signatures = new bytes[](3);
        for (uint256 i; i < 11; ++i) {
            Terms memory terms = _terms(i);
            if (i == 1) terms.validBefore = NOW;
            if (i == 2) terms.validAfter = NOW;
            if (i == 8 || i == 9) terms.from = address(new ContractWallet(vm.addr(terms.key)));
            if (i == 10) terms.from = address(new HostileWallet(Attack.BURN_ALL_GAS, address(0), ""));
            if (i != 3) usdc.mint(terms.from, terms.amount);
            authorizations[i] = _packOne(terms);
            if (i == 4) _submit(terms, _provider(terms));
            if (i == 5) _cancel(terms, terms.nonce);
            if (i == 6) usdc.blacklist(terms.from);
            if (i == 7) authorizations[i].value += 1;
            if (i >= 8) {
                bytes memory own = _sign(terms, _provider(terms));
                (authorizations[i].r, authorizations[i].vs) = (bytes32(i - 8), 0);
                signatures[i - 8] = i == 9 ? own : bytes.concat(own, own, own);
            }
        }
        bytes memory outcomes = hex"1030303020203030103030";
        vm.recordLogs();
        vm.assertEq(_settleWith(_batch(), authorizations, signatures), outcomes, "outcomes");
        _checkFailures(vm.getRecordedLogs(), outcomes);
        _checkPaid(3 * 47_500, 0, "two settled, and one had settled before");
    }

    /// Checks that there is one AuthorizationFailed for each failure, with its buyer, nonce and position.
    function _checkFailures(Vm.Log[] memory logs, bytes memory outcomes) private pure {
        uint256 next;
        for (uint256 i; i < logs.length; ++i) {
            if (logs[i].topics[0] != IBatchSettlement.AuthorizationFailed.selector) continue;
            while (outcomes[next] != 0x30) ++next;
            (uint256 index,) = abi.decode(logs[i].data, (uint256, bytes));
            vm.assertEq(index, next, "index of the failure");
            vm.assertEq(logs[i].topics[1], BATCH_ID, "batchId of the failure");
            if (next < 8) {
                vm.assertEq(logs[i].topics[2], bytes32(uint256(uint160(_buyer(next)))), "from of the failure");
            }
            vm.assertEq(logs[i].topics[3], _terms(next).nonce, "nonce of the failure");
            ++next;
        }
        for (; next < outcomes.length; ++next) vm.assertTrue(outcomes[next] != 0x30, "each failure is logged");
    }

    function test_behavior_lostRace() public {
        IBatchSettlement.Authorization[] memory authorizations = _goodOnes(0, 3);
        _settleOnes(authorizations, _noSweep());
        _expectNothingSettled(hex"202020");
        _settleOnes(authorizations, _noSweep());
    }

    function test_behavior_blacklistedSplitterKeepsTheBuyersMoney() public {
        payees.push(_splitterOf(_usual()));
        usdc.blacklist(payees[1]);
        IBatchSettlement.Authorization[] memory authorizations = _goodOnes(0, 2);
        Terms memory terms = _terms(1);
        terms.payeeIndex = 1;
        authorizations[1] = _packOne(terms);
        vm.assertEq(_settleOnes(authorizations, _sweepOf(_list(_usual()))), hex"1030", "outcomes");
        vm.assertEq(usdc.balanceOf(terms.from), terms.amount, "the buyer's remaining balance");
    }

    function test_args_triggerAndKeeperAreEchoed() public {
        IBatchSettlement.Batch memory batch = _batch();
        (batch.trigger, batch.batchId) = (255, 0);
        IBatchSettlement.Authorization[] memory authorizations = _goodOnes(0, 1);
        vm.expectEmit(true, true, true, true, address(settlement));
        emit IBatchSettlement.BatchSettled(0, STRANGER, address(usdc), 255, 1, 47_500, 0, hex"10");
        vm.prank(STRANGER);
        _settleWith(batch, authorizations, new bytes[](0));
    }

    // A failed sweep doesn't undo what settled.

    function _checkSettledWith(address otherFactory, uint64 gasLimit) private {
        payees[0] = _splitterOf(_usual());
        uint256[] memory splits = new uint256[](2);
        IBatchSettlement.Sweep memory sweep = IBatchSettlement.Sweep(otherFactory, gasLimit, splits);
        uint256 before = usdc.balanceOf(payees[0]);
        IBatchSettlement.Authorization[] memory authorizations = _goodOnes(_next, 2);
        _next += 2;
        uint256 gasBefore = gasleft();
        vm.assertEq(_settleOnes(authorizations, sweep), hex"1010", "outcomes");
        vm.assertLe(gasBefore - gasleft(), 400_000 + uint256(gasLimit), "gas");
        vm.assertEq(usdc.balanceOf(payees[0]) - before, 95_000, "the splitter's balance");
        _checkPaid(0, 0, "nothing is swept");
    }

    uint256 private _next;

    function test_behavior_factoriesThatFail() public {
        _checkSettledWith(address(0), SWEEP_GAS);
        _checkSettledWith(address(usdc), SWEEP_GAS);
        _checkSettledWith(address(settlement), SWEEP_GAS);
        _checkSettledWith(address(new BurningFactory()), SWEEP_GAS);
        _checkSettledWith(address(new LongWindedFactory()), SWEEP_GAS);
        _checkSettledWith(address(factory), 0);
        _checkSettledWith(address(factory), 50_000);
    }

    /// A batch inside the sweep is a separate batch: the logs of each batch come before its BatchSettled.
    function test_behavior_aFactoryThatSettles() public {
        IBatchSettlement.Authorization[] memory inner = _goodOnes(0, 2);
        ReentrantFactory hostile = new ReentrantFactory(
            settlement,
            abi.encodeCall(settlement.settleAuthorizations, (_batch(), payees, inner, new bytes[](0), _noSweep()))
        );
        IBatchSettlement.Authorization[] memory outer = _goodOnes(2, 1);
        IBatchSettlement.Sweep memory sweep =
            IBatchSettlement.Sweep(address(hostile), SWEEP_GAS, _list(_usual()));
        vm.recordLogs();
        vm.assertEq(_settleOnes(outer, sweep), hex"10", "outcomes");
        Vm.Log[] memory logs = vm.getRecordedLogs();
        vm.assertEq(logs.length, 8, "logs");
        vm.assertEq(logs[2].topics[0], IBatchSettlement.BatchSettled.selector, "the end of the outer batch");
        vm.assertEq(logs[7].topics[0], IBatchSettlement.BatchSettled.selector, "the end of the inner batch");
        _checkPaid(3 * 47_500, 0, "each once");
    }

    /// With any gas limit and a sweep that burns all of its gas, a prefix of the batch settles and nothing is reported
    /// as failed.
    function test_behavior_tooLittleGas() public {
        payees[0] = address(0xCAFE);
        IBatchSettlement.Authorization[] memory authorizations = _goodOnes(0, 4);
        address[2] memory factories = [address(new BurningFactory()), address(factory)];
        for (uint256 i; i < 2; ++i) {
            IBatchSettlement.Sweep memory sweep = IBatchSettlement.Sweep(factories[i], 100_000, new uint256[](20));
            bytes memory data = abi.encodeCall(
                settlement.settleAuthorizations, (_batch(), payees, authorizations, new bytes[](0), sweep)
            );
            uint256 least = 4;
            uint256 most;
            // Below 375,000 gas nothing is tried, and the batch reverts.
            for (uint256 gasLimit = 376_000; gasLimit < 800_000; gasLimit += 1_500) {
                uint256 state = vm.snapshotState();
                vm.cool(address(usdc));
                (bool success, bytes memory answer) = address(settlement).call{gas: gasLimit}(data);
                vm.assertTrue(success, "what settled stays settled");
                bytes memory outcomes = abi.decode(answer, (bytes));
                uint256 reached;
                while (reached < 4 && outcomes[reached] == 0x10) ++reached;
                vm.assertEq(usdc.balanceOf(address(0xCAFE)), reached * 47_500, "what the recipient received");
                for (uint256 k = reached; k < 4; ++k) vm.assertTrue(outcomes[k] == 0, "the rest isn't tried");
                if (reached < least) least = reached;
                if (reached > most) most = reached;
                vm.revertToState(state);
            }
            vm.assertEq(least, 1, "the smallest number that settled");
            vm.assertEq(most, 4, "the largest number that settled");
        }
    }

    /// The sweep's gas is kept back, so authorizations that burn gas can't use it up.
    function test_behavior_burnersLeaveTheSweepItsGas() public {
        payees[0] = _splitterOf(_usual());
        factory.deploy(_usual(), PLATFORM);
        IBatchSettlement.Authorization[] memory authorizations = _goodOnes(0, 3);
        Terms memory burner = _terms(3);
        burner.from = address(new HostileWallet(Attack.BURN_ALL_GAS, address(0), ""));
        authorizations[1] = _packOne(burner);
        (authorizations[1].r, authorizations[1].vs) = (0, 0);
        IBatchSettlement.Sweep memory sweep = _sweepOf(_list(_usual()));
        sweep.gasLimit = 150_000;
        bytes memory data = abi.encodeCall(
            settlement.settleAuthorizations, (_batch(), payees, authorizations, new bytes[](1), sweep)
        );
        for (uint256 gasLimit = 440_000; gasLimit < 900_000; gasLimit += 2_000) {
            uint256 state = vm.snapshotState();
            vm.cool(address(usdc));
            (bool success,) = address(settlement).call{gas: gasLimit}(data);
            vm.assertTrue(success, "what settled stays settled");
            vm.assertEq(usdc.balanceOf(payees[0]), 0, "all that settled is swept");
            vm.assertTrue(usdc.balanceOf(PROVIDER) > 1, "something settled");
            vm.revertToState(state);
        }
    }

    /// The loop over many remaining items that can't be tried must not use up the gas and revert what settled before.
    function test_behavior_aBurnerBeforeALongRest() public {
        IBatchSettlement.Authorization[] memory authorizations = _goodOnes(0, 150);
        Terms memory burner = _terms(150);
        burner.from = address(new HostileWallet(Attack.BURN_ALL_GAS, address(0), ""));
        authorizations[1] = _packOne(burner);
        (authorizations[1].r, authorizations[1].vs) = (0, 0);
        bytes memory data = abi.encodeCall(
            settlement.settleAuthorizations, (_batch(), payees, authorizations, new bytes[](1), _noSweep())
        );
        for (uint256 gasLimit = 320_000; gasLimit < 420_000; gasLimit += 4_000) {
            uint256 state = vm.snapshotState();
            vm.cool(address(usdc));
            (bool success, bytes memory answer) = address(settlement).call{gas: gasLimit}(data);
            vm.assertTrue(success, "what settled stays settled");
            vm.assertTrue(abi.decode(answer, (bytes))[149] == 0, "the rest isn't tried");
            vm.revertToState(state);
        }
    }

    function test_args_noCallGas() public {
        IBatchSettlement.Batch memory batch = _batch();
        batch.callGasLimit = 0;
        vm.assertEq(_settleWith(batch, _goodOnes(0, 3), new bytes[](0)), hex"101010", "outcomes");
    }

    function test_args_moreGasThanThereIs() public {
        IBatchSettlement.Authorization[] memory authorizations = _goodOnes(0, 2);
        IBatchSettlement.Sweep memory sweep = _sweepOf(_list(_usual()));
        sweep.gasLimit = type(uint64).max;
        _expectNothingSettled(hex"0000");
        _settleOnes(authorizations, sweep);
        // If there are no splitters, no gas is kept back.
        sweep.splits = new uint256[](0);
        vm.assertEq(_settleOnes(authorizations, sweep), hex"1010", "outcomes");
    }

    function test_error_nothingSettledSweepsNothing() public {
        _filled(_usual(), 1_000);
        _expectNothingSettled("");
        _settleOnes(new IBatchSettlement.Authorization[](0), _sweepOf(_list(_usual())));
        _checkPaid(0, 0, "nothing");
    }

    function test_error_tokenWithoutCode() public {
        IBatchSettlement.Batch memory batch = _batch();
        batch.token = address(4);
        IBatchSettlement.Authorization[] memory authorizations = _goodOnes(0, 1);
        vm.expectRevert(abi.encodeWithSelector(IBatchSettlement.InvalidToken.selector, address(4)));
        _settleWith(batch, authorizations, new bytes[](0));
    }

    function test_error_indexes() public {
        IBatchSettlement.Authorization[] memory authorizations = _goodOnes(0, 2);
        authorizations[1].head |= 1 << 80;
        vm.expectRevert(abi.encodeWithSelector(IBatchSettlement.InvalidPayee.selector, 1));
        _settleOnes(authorizations, _noSweep());
        authorizations = _goodOnes(2, 2);
        (authorizations[1].r, authorizations[1].vs) = (bytes32(uint256(1)), 0);
        vm.expectRevert(abi.encodeWithSelector(IBatchSettlement.InvalidSignatureIndex.selector, 1));
        _settleWith(_batch(), authorizations, new bytes[](1));
    }

    // Calldata that our encoders don't produce.

    /// Changes every word of the calldata in turn. Each authorization moves as it was signed or not at all, and no
    /// other money moves.
    function test_behavior_anyWordChanged() public {
        payees.push(_splitterOf(_usual()));
        IBatchSettlement.Authorization[] memory authorizations = _goodOnes(0, 2);
        Terms memory terms = _terms(1);
        terms.payeeIndex = 1;
        authorizations[1] = _packOne(terms);
        bytes memory original = abi.encodeCall(
            settlement.settleAuthorizations,
            (_batch(), payees, authorizations, new bytes[](1), _sweepOf(_list(_usual())))
        );
        for (uint256 offset = 4; offset < original.length; offset += 32) {
            for (uint256 change; change < 6; ++change) {
                bytes memory data = bytes.concat(original);
                uint256 word;
                assembly ("memory-safe") {
                    word := mload(add(add(data, 0x20), offset))
                }
                if (change == 0) word = 0;
                else if (change == 1) word = type(uint256).max;
                else if (change == 2) word ^= 1;
                else if (change == 3) word ^= 1 << 255;
                else if (change == 4) word ^= 0x20;
                else word ^= 1 << 128;
                assembly ("memory-safe") {
                    mstore(add(add(data, 0x20), offset), word)
                }
                uint256 state = vm.snapshotState();
                (bool success,) = address(settlement).call{gas: 10_000_000}(data);
                _checkTwo(success);
                vm.revertToState(state);
            }
        }
    }

    function _checkTwo(bool success) private view {
        bool[2] memory paid;
        for (uint256 i; i < 2; ++i) {
            Terms memory terms = _terms(i);
            paid[i] = usdc.authorizationState(terms.from, terms.nonce);
            vm.assertEq(usdc.balanceOf(terms.from), paid[i] ? 0 : terms.amount, "the buyer's remaining balance");
        }
        bool isSwept = usdc.balanceOf(PLATFORM) > 1;
        uint256 provider = paid[0] ? 47_500 : 0;
        if (isSwept) provider += 42_750;
        _checkPaid(provider, isSwept ? 4_750 : 0, "as signed");
        vm.assertEq(usdc.balanceOf(payees[1]), paid[1] && !isSwept ? 47_500 : 0, "the splitter's balance");
        vm.assertTrue(success == (paid[0] || paid[1]), "reverts exactly if nothing moves");
    }
}
